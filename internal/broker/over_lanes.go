package broker

import (
	"context"
	"errors"
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
// leaves out its part, unless none has answered. If it answers later, what it has done stays done.
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
	var in []string
	if !forwards || wanted(queue) || c.look.forwardsDue() {
		in = append(in, queue)
	}
	for lane := range c.lanes.lanes.Count() {
		if name := c.lanes.lanes.Queue(queue, lane); wanted(name) {
			in = append(in, name)
		}
	}
	answers := c.inLanes(ctx, sum, queue, in, keys, args)
	for i, cmd := range answers {
		switch {
		case rediswire.Says(cmd.Err(), rediswire.NoScript): // go-redis sends the whole script next
			return answer(ctx, sum, noScriptError{})
		case forwards && in[i] == queue && cmd.Err() == nil:
			c.look.forwarded()
		}
	}
	all := merged(ctx, sum, answers)
	c.pulse.called(all.Err())
	c.missed(all.Err())
	return all
}

// goesOn gives asynq an empty answer if no master has answered a script over lanes: after an error asynq would forward and recover
// nothing in its other queues, whose lanes may be on masters that answer.
func goesOn(ctx context.Context, sum string, cmd *redis.Cmd) *redis.Cmd {
	if _, reply := errors.AsType[redis.Error](cmd.Err()); cmd.Err() == nil || reply {
		return cmd
	}
	return merged(ctx, sum, nil)
}

// inLanes carries out a script for a queue, for which it is, and for its lanes: on all masters at the same time. An answer is that
// the master does not know the script if this process does not, either.
func (c *Conn) inLanes(ctx context.Context, sum, queue string, in, keys []string, args []any) []*redis.Cmd {
	answers := make([]*redis.Cmd, len(in))
	for i := range answers {
		answers[i] = answer(ctx, sum, errLate)
	}
	type part struct {
		at      []int
		answers []*redis.Cmd
		over    <-chan struct{}
	}
	var parts []part
	for _, g := range c.lanes.masters.groups(len(in), func(i int) string { return asynqwire.Pending(in[i]) }) {
		p := part{at: g.at, answers: make([]*redis.Cmd, len(g.at))}
		over, begun := c.lanes.masters.begin(errand{sum, g.master}, func(ctx context.Context) {
			theirs := make([]string, len(p.at))
			for n, i := range p.at {
				theirs[n] = in[i]
			}
			c.onMaster(ctx, sum, queue, theirs, keys, args, p.answers)
			if scripts[sum] == forwardScript {
				c.forwardedIn(ctx, theirs, p.answers)
			}
		})
		if p.over = over; begun {
			parts = append(parts, p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, awayAfter)
	defer cancel()
	for _, p := range parts {
		if !isOver(ctx, p.over) {
			continue
		}
		for n, i := range p.at {
			answers[i] = p.answers[n]
		}
	}
	return answers
}

// onMaster carries out a script in some lanes of one master, by its text if the master does not know it.
func (c *Conn) onMaster(ctx context.Context, sum, queue string, in, keys []string, args []any, answers []*redis.Cmd) {
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
	text, ok := overTexts.Load(sum)
	if !ok || len(unknown) == 0 {
		return
	}
	source, _ := text.(string)
	call(unknown, func(pipe redis.Pipeliner, keys []string, args []any) *redis.Cmd {
		return pipe.Eval(ctx, source, keys, args...)
	})
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

// forwardedIn tells all servers of the tasks that are pending now in some lanes of a master, by way of that.
func (c *Conn) forwardedIn(ctx context.Context, in []string, answers []*redis.Cmd) {
	var come []string
	for i, cmd := range answers {
		if n, err := cmd.Int(); err != nil || n == 0 {
			continue
		}
		c.lanes.hear(in[i])
		come = append(come, in[i])
	}
	c.announce(ctx, come...)
}

// announce tells all servers that tasks have come into queues of one master, as far as these are in lanes.
func (c *Conn) announce(ctx context.Context, queues ...string) {
	if c.lanes == nil || len(queues) == 0 {
		return
	}
	_, _ = c.lanes.masters.of(ctx, asynqwire.Pending(queues[0])).Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, queue := range queues {
			if lane, ok := c.lanes.lanes.In(queue); ok {
				pipe.Publish(ctx, lanes.ReadyChannel(lane), queue)
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
