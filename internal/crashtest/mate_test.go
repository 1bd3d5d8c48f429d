package crashtest_test

import (
	"encoding/json"
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
var acks = []string{"asynq/done", "asynq/retry", "asynq/requeue", "asynq/archive"}

// keep notes which tasks the mate has.
func (r *run) keep(cmd redis.Cmder) {
	answer, ok := cmd.(*redis.Cmd)
	if !ok || len(cmd.Args()) < 4 {
		return
	}
	step := stepOf(r.m, cmd)
	if message, ok := answer.Val().(string); ok && strings.HasPrefix(fmt.Sprint(cmd.Args()[3]), "asynq:{") {
		if begin, end := strings.Index(message, "{"), strings.LastIndex(message, "}"); begin >= 0 && begin < end {
			var j job
			if err := json.Unmarshal([]byte(message[begin:end+1]), &j); err == nil {
				r.held.Store(queueOf(cmd)+"/"+j.ID, true)
				return
			}
		}
	}
	if slices.Contains(acks, step) {
		for _, arg := range cmd.Args()[3:] {
			if _, id, ok := strings.Cut(fmt.Sprint(arg), "}:t:"); ok {
				r.held.Delete(queueOf(cmd) + "/" + id)
			}
		}
	}
}
