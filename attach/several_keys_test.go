package attach_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
)

// The single tasks are spread evenly over the keys: with lines of different lengths, those of the shorter ones would
// rightly go ahead. Each server has run a task before, so it refuses tasks as it fetches them: a task that a server of
// unknown keys refuses in its slot stands behind those that were fetched later but refused before.
//
// It runs beside no other test: places are lost while the processor is elsewhere.
func TestATaskOfFourBusyKeysStartsInItsTurn(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			producer := r.produce()
			const before, after, most = busy, busy, 200
			var started, known atomic.Int64
			place, ready := make(chan int, 1), make(chan struct{})
			for range servers {
				a := r.attach(asynq.Config{Concurrency: 32 / servers}, attach.Options{})
				var runs atomic.Int64
				r.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					if strings.HasPrefix(string(task.Payload()), "known") {
						if runs.Add(1) == 1 && int(known.Add(1)) == servers {
							close(ready)
						}
						<-ready
						return nil
					}
					n := int(started.Add(1))
					if id, _ := asynq.GetTaskID(ctx); id == "wide" {
						place <- n
					}
					<-time.After(time.Millisecond) // the work
					return nil
				})))
			}
			for i := range 32/servers*(servers-1) + 1 {
				r.record(producer, fmt.Sprint("known", i))
			}
			receive(t, ready)
			r.wantNoLocks()
			if err := r.inspect.PauseQueue("default"); err != nil {
				t.Fatal(err)
			}
			keys := []string{"a", "b", "c", "d"}
			for i := range before + after {
				if i == before {
					r.record(producer, "a,b,c,d", asynq.TaskID("wide"))
				}
				r.record(producer, keys[i%len(keys)])
			}
			if err := r.inspect.UnpauseQueue("default"); err != nil {
				t.Fatal(err)
			}
			r.goesOn(&started, func() bool { return len(place) > 0 })
			if late := receive(t, place) - before - 1; late > most {
				t.Errorf("the task of four keys started %d places late, want %d at most", late, most)
			} else {
				t.Logf("the task of four keys started %d places late", late)
			}
			r.goesOn(&started, func() bool { return started.Load() == before+1+after })
			r.wantNoLocks()
		})
	}
}

// goesOn waits until a condition holds, for as long as the number of tasks grows: many of them take a slow machine more than a wait for one
// event.
func (r *rig) goesOn(tasks *atomic.Int64, until func() bool) {
	r.Helper()
	for began, n := time.Now(), tasks.Load(); !until(); <-time.After(10 * time.Millisecond) {
		if now := tasks.Load(); now > n {
			began, n = time.Now(), now
		} else if time.Since(began) > limit {
			r.Fatalf("nothing has gone on for %v, after %d tasks", limit, n)
		}
	}
}
