package worker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// ackTimeout is what an acknowledgement gets whose context has ended before it was sent.
	ackTimeout = 5 * time.Second
	// pauseFirst and pauseMost are the pause after a failed command: it doubles with each one in a row.
	pauseFirst = 10 * time.Millisecond
	pauseMost  = time.Second
)

// asynqGuard is a hook on asynq's Redis client that mends two faults of asynq v0.26. TestAsynqStillNeedsTheGuard tells when it
// can go.
//
// An acknowledgement that failed is sent again by asynq's syncer with a context that has already ended, so it never
// succeeds, and a task that is done runs again. The guard lets scripts run although their context has ended.
//
// asynq's fetch loop does not pause after an error: a Redis that answers every call with an error at once is called many
// thousand times a second. The guard makes the caller wait a moment after an error.
type asynqGuard struct {
	log    *slog.Logger
	failed atomic.Int64 // commands that failed in a row
}

func newAsynqGuard(log *slog.Logger) *asynqGuard { return &asynqGuard{log: log} }

// DialHook changes nothing.
func (g *asynqGuard) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook mends the context of a script and pauses after an error.
func (g *asynqGuard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if ctx.Err() != nil && isScript(cmd) {
			fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTimeout)
			defer cancel()
			ctx = fresh
		}
		err := next(ctx, cmd)
		if !isOutage(err) {
			g.failed.Store(0)
			return err
		}
		timer := time.NewTimer(pauseAfter(g.failed.Add(1)))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return err
	}
}

// ProcessPipelineHook changes nothing: asynq sends no pipelines where these faults are.
func (g *asynqGuard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// isScript reports whether a command runs a Lua script, as all of asynq's acknowledgements do.
func isScript(cmd redis.Cmder) bool {
	name := cmd.Name()
	return strings.EqualFold(name, "evalsha") || strings.EqualFold(name, "eval")
}

// isOutage reports whether a command failed because Redis cannot serve at present, and not by what it was asked.
func isOutage(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word != "NOSCRIPT" && word != "NOT" && word != "BUSYGROUP" && word == strings.ToUpper(word)
	}
	return true
}

// pauseAfter returns how long to wait after the n-th failure in a row.
func pauseAfter(n int64) time.Duration {
	return min(pauseFirst<<min(n-1, 10), pauseMost)
}
