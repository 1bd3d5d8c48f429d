package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// blind is a Locker whose keys are freed once they have been refused, and which does not answer the next call.
type blind struct {
	locking.Locker
	free    func()
	refused atomic.Bool
}

func (b *blind) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	if b.refused.CompareAndSwap(true, false) {
		return nil, errors.Join(locking.ErrUnavailable, context.DeadlineExceeded)
	}
	lease, err := b.Locker.Acquire(ctx, keys, opts)
	if free := b.free; errors.Is(err, locking.ErrHeld) && free != nil {
		b.free = nil
		free()
		b.refused.Store(true)
	}
	return lease, err
}

// A key is released before a task that was refused it is among its waiters, and the locks do not answer when the task looks again.
func TestATaskWhoseLookIsNotAnsweredDoesNotWaitForItsTimer(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		opts := r.options(middleware.Requeue{})
		opts.RedisKeys = nil // of locks that are elsewhere
		opts.Locker = &blind{Locker: r.locker, free: func() {
			if err := lease.Release(context.Background()); err != nil {
				r.Error(err)
			}
		}}
		ran := make(chan time.Time, 1)
		began := time.Now()
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
			ran <- time.Now()
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		if took := receive(r.T, ran).Sub(began); took > 3*time.Second {
			r.Errorf("it runs after %v", took)
		}
	})
}

// unsure is a Locker that refuses a key each time, and answers each look after that with an error that does not pass.
type unsure struct {
	locking.Locker
	calls   atomic.Int32
	refused atomic.Bool
}

func (u *unsure) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	u.calls.Add(1)
	if u.refused.CompareAndSwap(true, false) {
		return nil, errors.New("too many calls")
	}
	lease, err := u.Locker.Acquire(ctx, keys, opts)
	u.refused.Store(errors.Is(err, locking.ErrHeld))
	return lease, err
}

// The locks refuse a task its key, and have another error for its look, each time: its timer brings it back.
func TestATaskWhoseLookIsRefusedWaitsForItsTimer(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("order:1")
		opts := r.options(middleware.Requeue{})
		opts.RedisKeys = nil // of locks that are elsewhere
		locker := &unsure{Locker: r.locker}
		opts.Locker = locker
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		time.Sleep(20 * time.Second)
		if n := locker.calls.Load(); n > 4 {
			r.Errorf("within 20 s the locks are asked %d times", n)
		}
	})
}
