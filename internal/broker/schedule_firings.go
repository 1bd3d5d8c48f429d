package broker

import (
	"context"
	"crypto/rand"
	_ "embed"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/fire.lua
var fireSource string

// NewFirings returns the Redis client of a scheduler that runs in several processes, one of which leads. Each firing is
// enqueued once: no firing is enqueued after a later leader has fired in the queue, or in the second in which the
// previous leader fired. A firing that was enqueued before is not an error. With an unsupported version of asynq, what
// the scheduler enqueues passes unchanged.
//
// name is that of the schedule. token is larger than that of every previous leader, and trusted reports whether this
// process still leads, as far as it knows.
func NewFirings(client redis.UniversalClient, name string, token int64, trusted func() bool) *Enqueuer {
	return NewEnqueuer(client, func(ctx context.Context, e Enqueuing) *redis.Cmd {
		if e.Script == "" {
			return nil
		}
		leads := "0"
		if trusted() {
			leads = "1"
		}
		last := "railtoken:fired:{" + e.Queue + "}:" + name
		keys := slices.Concat(e.Keys, []string{last, last + ":" + rand.Text()})
		args := slices.Concat(e.Args, []any{token, time.Now().Unix(), leads})
		return client.Eval(ctx, e.Function()+fireSource, keys, args...)
	})
}
