package delayqueue

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The functions of the scripts: one source of each rule, for one node and for a Cluster.
var (
	//go:embed lua/task.lua
	taskSource string
	//go:embed lua/record.lua
	recordSource string
	//go:embed lua/registry.lua
	registrySource string
	//go:embed lua/index.lua
	indexSource string
	//go:embed lua/state.lua
	stateSource string
	//go:embed lua/moved.lua
	movedSource string

	noteStep    = stepOf("note", recordSource)
	standStep   = stepOf("stand", recordSource)
	forgetStep  = stepOf("forget", recordSource)
	unplaceStep = stepOf("unplace", recordSource)
	leaveStep   = stepOf("leave", recordSource)
	joinStep    = stepOf("join", registrySource)
	lookStep    = stepOf("look", registrySource)
	discardStep = stepOf("discard", registrySource)
	enterStep   = stepOf("enter", indexSource)
	scoresStep  = stepOf("scores", indexSource)
	strikeStep  = stepOf("strike", indexSource)
	endedStep   = stepOf("ended", taskSource, stateSource)
	checkStep   = stepOf("check", taskSource, stateSource)
	markStep    = stepOf("mark", taskSource, stateSource)
	promoteStep = stepOf("promote", taskSource, stateSource)
	namedStep   = stepOf("named", movedSource)
	whoseStep   = stepOf("whose", movedSource)
	renameStep  = stepOf("rename", movedSource)
)

// stepOf returns the script that is one function: a step that needs the keys of one slot only.
func stepOf(function string, sources ...string) *redis.Script {
	return redis.NewScript(strings.Join(sources, "") + "return " + function + "(KEYS[1], unpack(ARGV))")
}

// A step is one function and what it is called with.
type step struct {
	script *redis.Script
	key    string
	args   []any
}

// step runs one step.
func (q *Queue) step(ctx context.Context, script *redis.Script, key string, args ...any) *redis.Cmd {
	return script.Run(ctx, q.client, []string{key}, args...)
}

// together runs steps that need not follow one another, in one round trip to each node. Those of one slot run in their order. It returns
// each step's own reply, and the first error.
func (q *Queue) together(ctx context.Context, steps []step) ([]*redis.Cmd, error) {
	replies := make([]*redis.Cmd, len(steps))
	_, _ = q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, s := range steps {
			replies[i] = s.script.EvalSha(ctx, pipe, []string{s.key}, s.args...)
		}
		return nil
	})
	var failed error
	for i, s := range steps {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			replies[i] = s.script.Eval(ctx, q.client, []string{s.key}, s.args...)
		}
		if err := replies[i].Err(); err != nil && failed == nil {
			failed = err
		}
	}
	return replies, failed
}

// unexpected is the error of a reply that the script cannot have given.
func unexpected(reply any) error {
	return fmt.Errorf("the server answered what the script cannot: %v", reply)
}

// numbered reads a reply that is a number and then strings.
func numbered(cmd *redis.Cmd) (n int, rest []string, err error) {
	reply, err := cmd.Slice()
	if err != nil {
		return 0, nil, err
	}
	if len(reply) == 0 {
		return 0, nil, unexpected(reply)
	}
	first, ok := reply[0].(int64)
	for _, value := range reply[1:] {
		text, isText := value.(string)
		ok = ok && isText
		rest = append(rest, text)
	}
	if !ok {
		return 0, nil, unexpected(reply)
	}
	return int(first), rest, nil
}
