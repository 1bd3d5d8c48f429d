package attach_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
)

// A handler asks for the key of its task in every way that there is.
func TestAHandlersOwnKeyIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
	single, err := locking.NewSingle(r.client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	lockers := map[string]locking.Locker{
		"its Attached's": a.Locker(), "a Single": single, "a Gate of its own": locking.NewGate(single, locking.GateOptions{}),
	}
	done := make(chan struct{})
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		for name, l := range lockers {
			if _, err := locking.Wait(ctx, l, []string{"order:1"}, locking.Options{}); !errors.Is(err, locking.ErrReentrant) {
				t.Errorf("%s: %v; want ErrReentrant", name, err)
			}
		}
		return nil
	})))
	r.enqueue("order:1")
	receive(t, done)
}
