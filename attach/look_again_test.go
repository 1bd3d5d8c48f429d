package attach_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
)

// refusesOnce refuses the first attempt, in the name of a holder that has released the key by then and knows of no
// subscription.
type refusesOnce struct {
	locking.Locker

	first sync.Once
}

func (l *refusesOnce) Acquire(ctx context.Context, keys []string, opts locking.Options) (lease *locking.Lease, err error) {
	l.first.Do(func() {
		err = &locking.HeldError{Key: keys[0], Holder: locking.Holder{Label: "gone", Remaining: time.Minute}}
	})
	if err != nil {
		return nil, err
	}
	return l.Locker.Acquire(ctx, keys, opts)
}

// Where the locks are elsewhere, a key may be released before a refused task is among its waiters. Its look afterwards finds
// the key free, and nobody else wakes the task.
func TestATaskIsWokenWhoseKeyWasReleasedBeforeItWasParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := make(chan struct{}, 1)
	a := r.attach(asynq.Config{}, attach.Options{Locker: &refusesOnce{Locker: elsewhere(t)}})
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done <- struct{}{}
		return nil
	})))
	r.enqueue("a")
	receive(t, done) // long before its timer
}
