package line

import (
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// The functions of the scripts: each rule has one source, for one node and for a Cluster.
var (
	//go:embed lua/task.lua
	taskSource string
	//go:embed lua/record.lua
	recordSource string
	//go:embed lua/waiters.lua
	waitersSource string
	//go:embed lua/state.lua
	stateSource string
	//go:embed lua/head.lua
	headSource string
	//go:embed lua/sequence.lua
	sequenceSource string
	//go:embed lua/owe.lua
	oweSource string
	//go:embed lua/wake.lua
	wakeSource string
	//go:embed lua/park_fetched.lua
	parkFetchedSource string
	//go:embed lua/admit.lua
	admitSource string

	functions = lanes.Functions + taskSource + recordSource + waitersSource + oweSource + stateSource + headSource + sequenceSource +
		wakeSource + parkFetchedSource + admitSource

	suspendStep  = stepOf("suspend")
	postponeStep = stepOf("postpone")
	deferStep    = stepOf("defer")
	standStep    = stepOf("stand")
	forgetStep   = stepOf("forget")
	leaveStep    = stepOf("leave")
	joinStep     = stepOf("join")
	lookStep     = stepOf("look")
	discardStep  = stepOf("discard")
	enterStep    = stepOf("enter")
	enlistStep   = stepOf("enlist")
	headStep     = stepOf("head")
	oweStep      = stepOf("owe")
	paidStep     = stepOf("paid")
	endedStep    = stepOf("ended")
	checkStep    = stepOf("check")
	hastenStep   = stepOf("hasten")
	promoteStep  = stepOf("promote")
)

var (
	//go:embed lua/park.lua
	parkSource string

	// On one node a call is one script. On a Cluster it is several, each of which is a function.
	parkScript = redis.NewScript(composed(parkSource))
	wakeScript = redis.NewScript(composed("return announced(wake(KEYS[1], KEYS[2], KEYS[3], nil, unpack(ARGV)))"))
)

// composed returns a script that may call the functions.
func composed(source string) string { return rediswire.Compose(functions, source) }

// stepOf returns the script that is one function: a step that needs the keys of one slot only. Its caller declares all
// of them, and the first is the function's first argument. While a slot moves from one node to another, Redis refuses a
// script before it begins unless all of its declared keys are in one place. With undeclared keys the script would fail
// in the middle of its work.
func stepOf(function string) *redis.Script {
	return redis.NewScript(composed("return " + function + "(KEYS[1], unpack(ARGV))"))
}

// unexpected is the error of a reply that the script cannot have given.
func unexpected(reply any) error {
	return fmt.Errorf("unexpected script reply: %v", reply)
}

// reply reads what a script has returned, value by value. err is that of the call, or of the first value that the
// script cannot have returned.
type reply struct {
	all, rest []any
	err       error
}

func replyOf(cmd *redis.Cmd) *reply {
	all, err := cmd.Slice()
	return &reply{all, all, err}
}

// next returns the next value, and the zero value when there is none of this kind.
func next[T any](r *reply) (value T) {
	ok := len(r.rest) > 0
	if ok {
		value, ok = r.rest[0].(T)
		r.rest = r.rest[1:]
	}
	if !ok && r.err == nil {
		r.err = unexpected(r.all)
	}
	return value
}

func (r *reply) number() int  { return int(next[int64](r)) }
func (r *reply) yes() bool    { return r.number() == 1 }
func (r *reply) text() string { return next[string](r) }

// moment reads microseconds since 1970.
func (r *reply) moment() time.Time {
	us, err := strconv.ParseInt(r.text(), 10, 64)
	if err != nil && r.err == nil {
		r.err = unexpected(r.all)
	}
	return time.UnixMicro(us)
}

// texts reads the next n values, or all that are left.
func (r *reply) texts(n int) []string {
	all := make([]string, 0, len(r.rest))
	for len(r.rest) > 0 && len(all) < n {
		all = append(all, r.text())
	}
	return all
}

// number returns a boolean argument of a script.
func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func anys(entries []string) []any {
	args := make([]any, len(entries))
	for i, entry := range entries {
		args[i] = entry
	}
	return args
}
