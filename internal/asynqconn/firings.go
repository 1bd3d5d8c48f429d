package asynqconn

import (
	"context"
	"crypto/rand"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/fire.lua
var fireSource string

// NewFirings returns the Redis client of a scheduler that several processes have, of which one leads. Each firing is
// enqueued once: not after a later leader has fired in the queue, and not in the second in which the leader before did.
// A firing that was made already is no error. What a scheduler of another version of asynq enqueues passes unchanged.
//
// name is that of the schedule. token is larger than that of every leader before, and trusted reports whether this one
// leads still, as far as it knows.
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
		script := strings.Replace(fireSource, "--SCRIPT--", e.Text, 1)
		return client.Eval(ctx, script, keys, args...)
	})
}
