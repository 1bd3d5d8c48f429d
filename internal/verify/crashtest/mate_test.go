package crashtest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// beginMate starts a process that shares keys and queues with the one that is stopped, and lives. Then nobody is started in its place.
func (r *run) beginMate() *process {
	hook := newTap(r.m, spot{}, before)
	hook.fetching = &r.fetching
	hook.sent = func(cmd redis.Cmder, began time.Time) {
		r.sent(cmd, began)
		r.keep(cmd)
	}
	return begin(r.T, r.m, "mate", r.settings, r.gate, r.ledger, hook)
}

// acks are the steps with which a process gives a task back to asynq.
var acks = []string{"park", "suspend", "asynq/done", "asynq/retry", "asynq/requeue", "asynq/archive"}

// answered is a command that runs a script.
type answered interface {
	Val() any
	SetVal(val any)
}

// keep notes which tasks the mate has.
func (r *run) keep(cmd redis.Cmder) {
	answer, ok := cmd.(answered)
	if !ok || len(cmd.Args()) < 4 {
		return
	}
	taken, _ := answer.Val().([]any)
	if slices.Contains(acks, stepOf(r.m, cmd)) {
		taken = takenWith(cmd, taken)
		for _, arg := range cmd.Args()[3:] {
			if _, id, ok := strings.Cut(fmt.Sprint(arg), "}:t:"); ok {
				r.held.Delete(queueOf(cmd) + "/" + id)
			}
		}
	}
	queues := fetchedFrom(cmd)
	for ; len(queues) > 0 && len(taken) > 0; taken = taken[7:] {
		r.held.Store(fmt.Sprintf("%s/%s", queues[taken[0].(int64)-1], taken[1]), true)
	}
}

// takenWith returns the tasks in the reply to acknowledgements, behind the replies to these.
func takenWith(cmd redis.Cmder, reply []any) []any {
	keys, _ := strconv.Atoi(fmt.Sprint(cmd.Args()[2]))
	if len(cmd.Args()) <= 3+keys {
		return nil
	}
	calls, err := strconv.Atoi(fmt.Sprint(cmd.Args()[3+keys])) // the first argument, but not of asynq's own script
	if err != nil || len(reply) <= calls {
		return nil
	}
	taken, _ := reply[calls].([]any)
	return taken
}

// fetchedFrom returns the queues that a script takes tasks from.
func fetchedFrom(cmd redis.Cmder) (queues []string) {
	for _, arg := range cmd.Args()[3:] {
		if queue, ok := strings.CutSuffix(fmt.Sprint(arg), "}:paused"); ok { // no other script names it
			queues = append(queues, strings.TrimPrefix(queue, "asynq:{"))
		}
	}
	return queues
}
