package crashtest_test

import (
	"fmt"
	"slices"
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
	if slices.Contains(acks, stepOf(r.m, cmd)) {
		for _, arg := range cmd.Args()[3:] {
			if _, id, ok := strings.Cut(fmt.Sprint(arg), "}:t:"); ok {
				r.held.Delete(queueOf(cmd) + "/" + id)
			}
		}
	}
	queues := fetchedFrom(cmd)
	if reply, ok := answer.Val().([]any); ok && len(queues) > 0 {
		for taken := reply[len(reply)%10:]; len(taken) > 0; taken = taken[10:] { // an acknowledgement has its own answer first
			r.held.Store(fmt.Sprintf("%s/%s", queues[taken[0].(int64)-1], taken[1]), true)
		}
	}
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
