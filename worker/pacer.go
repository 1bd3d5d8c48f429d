package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookAgain is the TaskCheckInterval that asynq gets: what is left of its own pause, as the pacer makes the real one.
const lookAgain = time.Millisecond

// pacer is a hook on asynq's Redis client that paces the looks of idle servers for tasks. asynq sleeps between them, and nothing can
// wake it; the pacer holds the last fetch of a look that found nothing instead, for the interval or until a task was put at the head of
// a queue by this process. So a task that is woken starts within milliseconds, and an idle server looks no more often than before.
type pacer struct {
	interval time.Duration // the longest pause
	queues   int64         // how many fetches a look consists of
	stopping <-chan struct{}

	empty atomic.Int64  // fetches that found nothing since the last one that did, of all servers
	woken chan struct{} // has a value when a task was put at the head of a queue since the last look
}

func newPacer(interval time.Duration, stopping <-chan struct{}) *pacer {
	return &pacer{interval: interval, queues: 1, stopping: stopping, woken: make(chan struct{}, 1)}
}

// wake ends a pause, the present one or the next. It never waits.
func (p *pacer) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// DialHook changes nothing.
func (p *pacer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook holds the last fetch of a look that found nothing.
func (p *pacer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		switch {
		case err == nil && kindOf(cmd) == fetch:
			p.empty.Store(0)
		case errors.Is(err, redis.Nil) && kindOf(cmd) == fetch && p.empty.Add(1)%p.queues == 0:
			p.pause(ctx)
		}
		return err
	}
}

// ProcessPipelineHook changes nothing: asynq sends no pipelines.
func (p *pacer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// pause waits for a third of the interval to all of it, so that servers do not look in step.
func (p *pacer) pause(ctx context.Context) {
	third := p.interval / 3
	timer := time.NewTimer(max(third+rand.N(max(2*third, 1))-2*lookAgain, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-p.stopping:
	case <-p.woken:
	case <-timer.C:
	}
}
