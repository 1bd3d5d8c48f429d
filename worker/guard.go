package worker

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// ackTimeout is what an acknowledgement gets whose context was cancelled before it was sent.
	ackTimeout = 5 * time.Second
	// pauseFirst and pauseMost are the pause after a fetch that failed: it doubles with each one in a row.
	pauseFirst = 10 * time.Millisecond
	pauseMost  = time.Second
)

// asynqGuard is a hook on asynq's Redis client that mends two faults of asynq v0.26. The tests whose names begin with
// TestAsynqStillNeedsTheGuard tell when it can go.
//
// An acknowledgement that failed is sent again by asynq's syncer with a context that has been cancelled since, so it never
// succeeds, and a task that is done runs again. The guard lets acknowledgements run although their context was cancelled.
// It keeps to the context's deadline: there asynq's lease ends, and then another worker may have the task.
//
// asynq's fetch loop does not pause after an error: a Redis that answers every call with an error at once is called many
// thousand times a second. The guard makes the fetch loop wait a moment, and nothing else: the rest of asynq paces itself,
// and an acknowledgement that waited would hold up a shutdown.
type asynqGuard struct {
	failed atomic.Int64 // fetches that failed in a row
}

// DialHook changes nothing.
func (g *asynqGuard) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook mends the context of an acknowledgement and pauses after a fetch that failed.
func (g *asynqGuard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch kindOf(cmd) {
		case ack:
			if ctx.Err() != nil {
				fresh, cancel := uncancelled(ctx)
				defer cancel()
				ctx = fresh
			}
			return next(ctx, cmd)
		case fetch:
			err := next(ctx, cmd)
			g.pause(ctx, err)
			return err
		default:
			return next(ctx, cmd)
		}
	}
}

// ProcessPipelineHook changes nothing: asynq sends no pipelines.
func (g *asynqGuard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// pause waits after a fetch that failed.
func (g *asynqGuard) pause(ctx context.Context, err error) {
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		g.failed.Store(0)
		return
	case redis.HasErrorPrefix(err, "NOSCRIPT"): // go-redis sends the whole script next
		return
	}
	timer := time.NewTimer(pauseAfter(g.failed.Add(1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// pauseAfter returns how long to wait after the n-th failure in a row.
func pauseAfter(n int64) time.Duration {
	return min(pauseFirst<<min(n-1, 10), pauseMost)
}

// uncancelled returns a context that runs although ctx was cancelled, for ackTimeout or up to the deadline of ctx.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(ackTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}

// kind is what a command is to asynq.
type kind int

const (
	other kind = iota
	fetch
	ack
)

// kindOf tells by its keys what a command is: asynq's scripts that begin or end a run of a task name the active tasks and the leases
// of the queue, and the one that begins it also looks whether the queue is paused.
func kindOf(cmd redis.Cmder) kind {
	var active, lease, paused bool
	for _, key := range scriptKeys(cmd) {
		name, _ := key.(string)
		if !strings.HasPrefix(name, "asynq:{") {
			return other
		}
		active = active || strings.HasSuffix(name, "}:active")
		lease = lease || strings.HasSuffix(name, "}:lease")
		paused = paused || strings.HasSuffix(name, "}:paused")
	}
	switch {
	case !active || !lease:
		return other
	case paused:
		return fetch
	default:
		return ack
	}
}

// scriptKeys returns the keys of a command that runs a Lua script; none for any other command.
func scriptKeys(cmd redis.Cmder) []any {
	if name := cmd.Name(); name != "evalsha" && name != "eval" {
		return nil
	}
	args := cmd.Args()
	if len(args) < 3 {
		return nil
	}
	n, ok := args[2].(int)
	if !ok || n < 0 || len(args) < 3+n {
		return nil
	}
	return args[3 : 3+n]
}
