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
	//go:embed lua/suspend.lua
	suspendSource string

	suspendStep  = stepOf("suspend", recordSource, taskSource, stateSource, suspendSource)
	postponeStep = stepOf("postpone", taskSource, stateSource)
	deferStep    = stepOf("defer", taskSource, stateSource)
	standStep    = stepOf("stand", recordSource)
	forgetStep   = stepOf("forget", recordSource)
	unplaceStep  = stepOf("unplace", recordSource)
	leaveStep    = stepOf("leave", recordSource)
	joinStep     = stepOf("join", registrySource)
	lookStep     = stepOf("look", registrySource)
	discardStep  = stepOf("discard", registrySource)
	enterStep    = stepOf("enter", indexSource)
	scoresStep   = stepOf("scores", indexSource)
	strikeStep   = stepOf("strike", indexSource)
	endedStep    = stepOf("ended", taskSource, stateSource)
	checkStep    = stepOf("check", taskSource, stateSource)
	hastenStep   = stepOf("hasten", taskSource, stateSource)
	promoteStep  = stepOf("promote", taskSource, stateSource)
	pausedStep   = stepOf("paused", taskSource, stateSource)
)

// stepOf returns the script that is one function: a step that needs the keys of one slot only. Its caller declares all of them, the first of which
// is the function's first argument. While a slot moves from one node to another, Redis refuses a script before it begins, when not
// all of the keys that it declares are in one place; of a key that is not declared the script finds that out in the middle of its work.
func stepOf(function string, sources ...string) *redis.Script {
	return redis.NewScript(strings.Join(sources, "") + "return " + function + "(KEYS[1], unpack(ARGV))")
}

// A step is one function and what it is called with.
type step struct {
	script *redis.Script
	key    string
	args   []any
}

// A scriptCall is a script and what it is called with: a step that declares more keys than one.
type scriptCall struct {
	script *redis.Script
	keys   []string
	args   []any
}

// step runs one step.
func (q *Queue) step(ctx context.Context, script *redis.Script, key string, args ...any) *redis.Cmd {
	return script.Run(ctx, q.client, []string{key}, args...)
}

// together runs steps that need not follow one another, in one round trip to each node. Those of one slot run in their order. It returns
// each step's own reply, and the first error.
func (q *Queue) together(ctx context.Context, steps []step) ([]*redis.Cmd, error) {
	calls := make([]scriptCall, len(steps))
	for i, s := range steps {
		calls[i] = scriptCall{s.script, []string{s.key}, s.args}
	}
	replies := q.pipeline(ctx, calls)
	for _, reply := range replies {
		if err := reply.Err(); err != nil {
			return replies, err
		}
	}
	return replies, nil
}

// pipeline runs scripts in one round trip to each node, and returns the reply of each. On a Cluster go-redis may send some of them again, when
// the first of those for a node was refused: a second run must do no harm.
func (q *Queue) pipeline(ctx context.Context, calls []scriptCall) []*redis.Cmd {
	replies := make([]*redis.Cmd, len(calls))
	if len(calls) == 1 {
		replies[0] = calls[0].script.Run(ctx, q.client, calls[0].keys, calls[0].args...)
		return replies
	}
	_, _ = q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range calls {
			replies[i] = c.script.EvalSha(ctx, pipe, c.keys, c.args...)
		}
		return nil
	})
	for i, c := range calls {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			replies[i] = c.script.Eval(ctx, q.client, c.keys, c.args...)
		}
	}
	return replies
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
