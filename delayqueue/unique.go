package delayqueue

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/unique.lua
	uniqueSource string

	uniqueScript = redis.NewScript(uniqueSource)
)

// uniqueMargin is how long a uniqueness lock lasts beyond the time at which its task tries again: a waiting task parks anew, which has it last on.
const uniqueMargin = 2 * time.Minute

// keepUnique has asynq refuse duplicates of a unique task (asynq.Unique) for as long as it waits, if its lock has not ended before.
func (q *Queue) keepUnique(ctx context.Context, t Task, message []byte, wait time.Duration) {
	lock := textOf(string(message), uniqueField)
	if lock == "" {
		return
	}
	if err := uniqueScript.Run(ctx, q.client, []string{lock}, t.ID, (wait + uniqueMargin).Milliseconds()).Err(); err != nil {
		q.log.WarnContext(ctx, "the uniqueness lock of a waiting task may end before the task runs", "task", t.String(), "error", err)
	}
}
