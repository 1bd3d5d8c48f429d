package broker

import (
	"context"
	"sync"

	"github.com/railtoken/railtoken/internal/broker/intake"
)

// flights has the fetch that is under way, so that asynq need not wait for it when a task comes in another way.
type flights struct {
	mu   sync.Mutex
	last *flight // nil when none is under way
}

// flight is one fetch.
type flight struct {
	queue string
	done  chan struct{}
	more  bool
	err   error
}

// fetch fetches tasks from a queue, or waits for the fetch that is under way. arrived reports that a task has come before.
func (f *flights) fetch(ctx context.Context, in *intake.Intake, queue string) (arrived, more bool, err error) {
	for {
		last := f.begin(ctx, in, queue)
		select {
		case <-last.done:
		default:
			select {
			case <-last.done:
			case <-in.Arrived():
				return true, true, nil
			}
		}
		if last.queue == queue || in.AllAtOnce() {
			return false, last.more, last.err
		}
	}
}

// begin returns the fetch that is under way, and begins one if there is none.
func (f *flights) begin(ctx context.Context, in *intake.Intake, queue string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil {
		return f.last
	}
	last := &flight{queue: queue, done: make(chan struct{})}
	f.last = last
	go func() {
		last.more, last.err = in.Fetch(context.WithoutCancel(ctx), queue)
		f.mu.Lock()
		f.last = nil
		f.mu.Unlock()
		close(last.done)
	}()
	return last
}
