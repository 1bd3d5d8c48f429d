package attach_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
)

// The single tasks are spread evenly over the keys: with lines of different lengths, those of the shorter ones would
// rightly go ahead.
func TestATaskOfFourBusyKeysStartsInItsTurn(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			producer := r.produce()
			const before, after, most = 2000, 2000, 200
			keys := []string{"a", "b", "c", "d"}
			for i := range before + after {
				if i == before {
					r.record(producer, "a,b,c,d", asynq.TaskID("wide"))
				}
				r.record(producer, keys[i%len(keys)])
			}
			var started atomic.Int64
			place, done := make(chan int, 1), make(chan struct{})
			work := func(ctx context.Context, _ *asynq.Task) error {
				n := int(started.Add(1))
				if id, _ := asynq.GetTaskID(ctx); id == "wide" {
					place <- n
				}
				<-time.After(time.Millisecond) // the work
				if n == before+1+after {
					close(done)
				}
				return nil
			}
			for range servers {
				a := r.attach(asynq.Config{Concurrency: 32 / servers}, attach.Options{})
				r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(work)))
			}
			if late := receive(t, place) - before - 1; late > most {
				t.Errorf("the task of four keys started %d places late, want %d at most", late, most)
			} else {
				t.Logf("the task of four keys started %d places late", late)
			}
			receive(t, done)
			r.wantNoLocks()
		})
	}
}
