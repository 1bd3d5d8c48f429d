package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// pacer paces the checks of one idle server. asynq sleeps between them, and nothing can wake it. Instead, the pacer
// holds the last fetch of a check that found nothing, for the interval or until this process puts a task at the head of
// a queue, or the bell rings. So a task starts within milliseconds, and an idle server checks no more often than before.
//
// Each server has its own pacer. A server fetches from one queue after another, and only between two checks, when all
// of its queues were empty, may a wake reach it. If it were held in the middle of a check, it would take a wake and
// miss the task.
type pacer struct {
	interval time.Duration // the longest pause
	queues   int64         // the number of fetches in a check
	round    round
	stopping <-chan struct{}
	woken    Wakes
	arrived  <-chan struct{} // a task lies in memory
	bell     *bell
	starves  func() bool // the server has no slot for a task that it would fetch

	empty   atomic.Int64 // fetches of this check that found nothing
	stopped atomic.Bool  // stopping has ended a pause: the server keeps checking until it is shut down
	heard   atomic.Bool  // the bell has ended the last pause
}

func newPacer(opts Options, in *intake.Intake, bell *bell) *pacer {
	p := &pacer{
		interval: opts.Interval, queues: int64(len(intake.Served(opts.Queues))), stopping: opts.Stopping, woken: opts.Wakes, arrived: in.Arrived(),
		bell: bell, starves: in.Starves,
	}
	p.round.queues = p.queues
	if in.AllAtOnce() {
		p.queues = 1
	}
	return p
}

// fetched holds the last fetch of a check that found nothing, and reports whether a task may have come meanwhile.
func (p *pacer) fetched(ctx context.Context, err error) (come bool) {
	switch {
	case errors.Is(err, redis.Nil):
		if p.empty.Add(1) >= p.queues {
			p.empty.Store(0)
			return p.pause(ctx)
		}
	case rediswire.Says(err, rediswire.NoScript): // go-redis sends the whole script next
	default: // a task ends the check, and so does an error
		p.empty.Store(0)
	}
	return false
}

// pause waits for between 0.72 and 0.98 of the interval, so that servers do not check in step. It reports
// whether a task may have come.
func (p *pacer) pause(ctx context.Context) (come bool) {
	timer := time.NewTimer(max(p.interval*72/100+rand.N(max(p.interval*26/100, 1))-2*CheckInterval, 0))
	defer timer.Stop()
	stopping := p.stopping
	if p.stopped.Load() {
		stopping = nil
	}
	var woken, rung <-chan struct{}
	if !p.starves() {
		woken, rung = p.woken, p.bell.listen()
	}
	select {
	case <-ctx.Done():
	case <-stopping:
		p.stopped.Store(true)
	case <-woken:
		return true
	case <-p.arrived:
		return true
	case <-rung:
		p.heard.Store(true)
		return true
	case <-timer.C:
	}
	return false
}

// followed notes whether the fetch after a pause that has ended early has found a task. It reports whether the pause goes on: there
// was none, and one fetch is a whole check. Another server has been faster, or a task that lies in memory is not asynq's yet,
// because its locks are being taken or all slots are counted as full.
func (p *pacer) followed(err error) (again bool) {
	if p.heard.Swap(false) && (err == nil || errors.Is(err, redis.Nil)) {
		p.bell.followed(err == nil, p.interval)
	}
	return p.queues == 1 && errors.Is(err, redis.Nil)
}
