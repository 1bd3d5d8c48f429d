package asynqconn

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wakes tells the servers of a process that a task was put at the head of a queue by this process.
type Wakes chan struct{}

// NewWakes returns Wakes for some servers: as many as can look at once are kept for those that do not pause just now.
func NewWakes(servers int) Wakes { return make(Wakes, servers) }

// Wake ends a pause, a present one or the next. It never waits: when as many wakes as there are servers are on their
// way, each of them looks at all queues after it.
func (w Wakes) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// pacer paces the looks for tasks of one idle server. asynq sleeps between them, and nothing can wake it; the pacer
// holds the last fetch of a look that found nothing instead, for the interval or until a task was put at the head of a
// queue by this process. So a task that is woken starts within milliseconds, and an idle server looks no more often
// than before.
//
// Each server has its own: a server fetches from one queue after another, and only between its looks, when all its
// queues have been empty, may a wake find it. One that is held before it has looked at all would take a wake and miss
// the task.
type pacer struct {
	interval time.Duration // the longest pause
	queues   int64         // how many fetches a look consists of
	stopping <-chan struct{}
	woken    Wakes

	empty   atomic.Int64 // fetches that found nothing since the look began
	stopped atomic.Bool  // stopping has ended a pause: the server goes on to look until it is shut down
}

func newPacer(opts Options) *pacer {
	return &pacer{interval: opts.Interval, queues: int64(opts.Queues), stopping: opts.Stopping, woken: opts.Wakes}
}

// fetched holds the last fetch of a look that found nothing.
func (p *pacer) fetched(ctx context.Context, err error) {
	switch {
	case errors.Is(err, redis.Nil):
		if p.empty.Add(1) >= p.queues {
			p.empty.Store(0)
			p.pause(ctx)
		}
	case err != nil && redis.HasErrorPrefix(err, "NOSCRIPT"): // go-redis sends the whole script next
	default: // a task ends the look, and so does an error
		p.empty.Store(0)
	}
}

// pause waits for a third of the interval to all of it, so that servers do not look in step.
func (p *pacer) pause(ctx context.Context) {
	third := p.interval / 3
	timer := time.NewTimer(max(third+rand.N(max(2*third, 1))-2*CheckInterval, 0))
	defer timer.Stop()
	stopping := p.stopping
	if p.stopped.Load() {
		stopping = nil
	}
	select {
	case <-ctx.Done():
	case <-stopping:
		p.stopped.Store(true)
	case <-p.woken:
	case <-timer.C:
	}
}
