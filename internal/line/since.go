package line

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// sinceField of the hash of a task that supersedes others has when it was first refused or began to run, in all its attempts (us). Of two
// tasks that supersede each other, it tells which is the newer one.
const sinceField = "railtoken:since"

var (
	//go:embed lua/since.lua
	sinceSource string
	sinceScript = redis.NewScript(sinceSource)
)

// sinceOf reads that field; zero if it is not there.
func sinceOf(field any) time.Time {
	text, _ := field.(string)
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// BeginSuperseding notes that the run of a task that supersedes others begins, and returns when the task was first refused or began to run,
// in all its attempts. It is zero if the task is gone.
func (r *Run) BeginSuperseding(ctx context.Context) (since time.Time, err error) {
	if r == nil {
		return time.Time{}, nil
	}
	text, err := sinceScript.Run(ctx, r.queue.client, []string{r.task.Hash()}, time.Since(r.since).Microseconds()).Text()
	return sinceOf(text), err
}
