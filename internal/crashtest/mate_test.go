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

// keep notes which tasks the mate has.
func (r *run) keep(cmd redis.Cmder) {
	answer, ok := cmd.(answer)
	if !ok || len(cmd.Args()) < 4 {
		return
	}
	if reply, ok := answer.Val().([]any); ok && len(reply) > 0 && strings.HasSuffix(fmt.Sprint(cmd.Args()[3]), "}:pending") {
		r.held.Store(fmt.Sprintf("%s/%s", queueOf(cmd), reply[0]), true)
		return
	}
	if slices.Contains(acks, stepOf(r.m, cmd)) {
		for _, arg := range cmd.Args()[3:] {
			if _, id, ok := strings.Cut(fmt.Sprint(arg), "}:t:"); ok {
				r.held.Delete(queueOf(cmd) + "/" + id)
			}
		}
	}
}
