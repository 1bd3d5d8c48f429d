package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookAgain is the TaskCheckInterval that asynq gets: what is left of its own pause, as the pacer makes the real one.
const lookAgain = time.Millisecond

// wakes tells pacers that a task was put at the head of a queue by this process.
type wakes chan struct{}

// newWakes returns wakes for some servers: as many as can look at once are kept for those that do not pause just now.
func newWakes(servers int) wakes { return make(wakes, servers) }

// wake ends a pause, a present one or the next. It never waits: when as many wakes as there are servers are on their way, each of them looks
// at all queues after it.
func (w wakes) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// pacer is the Redis client of one asynq server, and paces its looks for tasks while it is idle. asynq sleeps between them, and nothing
// can wake it; the pacer holds the last fetch of a look that found nothing instead, for the interval or until a task was put at the
// head of a queue by this process. So a task that is woken starts within milliseconds, and an idle server looks no more often than before.
//
// Each server has its own: a server fetches from one queue after another, and only between its looks, when all its queues have been
// empty, may a wake find it. One that is held before it has looked at all would take a wake and miss the task.
type pacer struct {
	redis.UniversalClient

	interval time.Duration // the longest pause
	queues   int64         // how many fetches a look consists of
	stopping <-chan struct{}
	woken    wakes

	empty atomic.Int64 // fetches that found nothing since the look began
}

func newPacer(client redis.UniversalClient, interval time.Duration, queues int, stopping <-chan struct{}, woken wakes) *pacer {
	return &pacer{UniversalClient: client, interval: interval, queues: int64(queues), stopping: stopping, woken: woken}
}

// EvalSha runs a script, and paces those that fetch a task.
func (p *pacer) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return p.paced(ctx, p.UniversalClient.EvalSha(ctx, sum, keys, args...))
}

// Eval does the same with a script that the server does not know yet.
func (p *pacer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return p.paced(ctx, p.UniversalClient.Eval(ctx, script, keys, args...))
}

// paced holds the last fetch of a look that found nothing.
func (p *pacer) paced(ctx context.Context, cmd *redis.Cmd) *redis.Cmd {
	if kindOf(cmd) != fetch {
		return cmd
	}
	switch err := cmd.Err(); {
	case errors.Is(err, redis.Nil):
		if p.empty.Add(1) >= p.queues {
			p.empty.Store(0)
			p.pause(ctx)
		}
	case err != nil && redis.HasErrorPrefix(err, "NOSCRIPT"): // go-redis sends the whole script next
	default: // a task ends the look, and so does an error
		p.empty.Store(0)
	}
	return cmd
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
