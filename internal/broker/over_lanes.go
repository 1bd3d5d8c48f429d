package broker

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// janitorScript deletes tasks whose retention has ended.
const janitorScript = "deleteExpiredCompletedTasks"

// overTexts has the scripts of asynq that are carried out in lanes, too, by their SHA-1, once go-redis has sent their texts.
var overTexts sync.Map

// overLanes carries out a script of asynq, which is for one queue, for the queue and for its lanes that may have something for
// it. asynq gets all that they answer as one answer: the sum of numbers, or all elements of lists. A master that does not answer
// leaves out its part, unless none has answered.
func (c *Conn) overLanes(ctx context.Context, text, sum string, keys []string, args []any, send func(context.Context) *redis.Cmd) *redis.Cmd {
	queue, ok := "", false
	if len(keys) > 0 {
		queue, ok = asynqwire.QueueIn(keys[0])
	}
	if !ok {
		return send(ctx)
	}
	if text != "" {
		overTexts.LoadOrStore(sum, text)
	}
	forwards := scripts[sum] == forwardScript
	wanted := c.lanes.mayHave
	if forwards {
		wanted = c.lanes.mayDelay
	}
	var answers []*redis.Cmd
	if !forwards || c.lanes.mayDelay(queue) || c.look.forwardsDue() {
		cmd := send(ctx)
		if rediswire.Says(cmd.Err(), rediswire.NoScript) { // go-redis sends the whole script next
			return cmd
		}
		if forwards && cmd.Err() == nil {
			c.look.forwarded()
		}
		answers = append(answers, cmd)
	}
	var in []string
	for lane := range c.lanes.lanes.Count() {
		if name := c.lanes.lanes.Queue(queue, lane); wanted(name) {
			in = append(in, name)
		}
	}
	theirs, known := c.inLanes(ctx, sum, queue, in, keys, args)
	if !known {
		return answer(ctx, sum, noScriptError{})
	}
	if forwards {
		c.forwardedIn(ctx, in, theirs)
	}
	all := merged(ctx, sum, append(answers, theirs...))
	c.pulse.called(all.Err())
	c.missed(all.Err())
	return all
}

// inLanes carries out a script for queues in lanes; known is false if some master does not know it, nor does this process.
func (c *Conn) inLanes(ctx context.Context, sum, queue string, in, keys []string, args []any) (answers []*redis.Cmd, known bool) {
	if len(in) == 0 {
		return nil, true
	}
	answers = make([]*redis.Cmd, len(in))
	call := func(at []int, script func(redis.Pipeliner, []string, []any) *redis.Cmd) {
		_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, i := range at {
				inKeys, inArgs := inLane(asynqwire.Prefix(queue), asynqwire.Prefix(in[i]), keys, args)
				answers[i] = script(pipe, inKeys, inArgs)
			}
			return nil
		})
	}
	every := make([]int, len(in))
	for i := range every {
		every[i] = i
	}
	call(every, func(pipe redis.Pipeliner, keys []string, args []any) *redis.Cmd {
		return pipe.EvalSha(ctx, sum, keys, args...)
	})
	var unknown []int
	for i, cmd := range answers {
		if rediswire.Says(cmd.Err(), rediswire.NoScript) {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) == 0 {
		return answers, true
	}
	text, ok := overTexts.Load(sum)
	if !ok {
		return nil, false
	}
	source, _ := text.(string)
	call(unknown, func(pipe redis.Pipeliner, keys []string, args []any) *redis.Cmd {
		return pipe.Eval(ctx, source, keys, args...)
	})
	return answers, true
}

// inLane returns the keys and arguments of a script for a queue as they are for another.
func inLane(prefix, other string, keys []string, args []any) ([]string, []any) {
	ofKeys, ofArgs := make([]string, len(keys)), make([]any, len(args))
	for i, key := range keys {
		ofKeys[i] = strings.Replace(key, prefix, other, 1)
	}
	for i, arg := range args {
		ofArgs[i] = arg
		if text, ok := arg.(string); ok && strings.HasPrefix(text, prefix) {
			ofArgs[i] = other + text[len(prefix):]
		}
	}
	return ofKeys, ofArgs
}

// forwardedIn tells all servers of the tasks that are pending now in some lanes.
func (c *Conn) forwardedIn(ctx context.Context, in []string, answers []*redis.Cmd) {
	var come []string
	for i, cmd := range answers {
		if n, err := cmd.Int(); err == nil && n > 0 {
			come = append(come, in[i])
			c.lanes.hear(in[i])
		}
	}
	c.announce(ctx, come...)
}

// announce tells all servers that tasks have come into queues, as far as these are in lanes.
func (c *Conn) announce(ctx context.Context, queues ...string) {
	if c.lanes == nil || len(queues) == 0 {
		return
	}
	_, _ = c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, queue := range queues {
			if _, ok := c.lanes.lanes.In(queue); ok {
				pipe.Publish(ctx, lanes.ReadyChannel, queue)
			}
		}
		return nil
	})
}

// merged returns all answers to a script as one, or an error if there are only errors.
func merged(ctx context.Context, sum string, answers []*redis.Cmd) *redis.Cmd {
	var total int64
	var list []any
	var err error
	good := len(answers) == 0
	for _, cmd := range answers {
		switch value, failure := cmd.Result(); value := value.(type) {
		case int64:
			total, good = total+value, true
		case []any:
			list, good = append(list, value...), true
		default:
			if failure != nil {
				err = failure
			}
		}
	}
	cmd := redis.NewCmd(ctx, "evalsha", sum)
	switch {
	case !good:
		cmd.SetErr(err)
	case scripts[sum] == forwardScript || scripts[sum] == janitorScript:
		cmd.SetVal(total)
	case list == nil:
		cmd.SetVal([]any{})
	default:
		cmd.SetVal(list)
	}
	return cmd
}
