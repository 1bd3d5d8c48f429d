package inspect_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
)

// BenchmarkDeposeToNextStart measures the time from the call of Depose to the start of the task that waits for the key.
func BenchmarkDeposeToNextStart(b *testing.B) {
	r := newRig(b)
	began := make(chan time.Time, 1)
	r.serve(attach.Options{}, func(context.Context, *asynq.Task) error {
		began <- time.Now()
		return nil
	})
	locks := r.locks()
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		key := "k" + strconv.Itoa(len(took))
		r.acquire(locks, key)
		r.enqueue(key, key)
		r.eventually("the task waits", func() bool {
			k, err := r.inspect.Look(b.Context(), key, 1)
			if err != nil {
				b.Fatal(err)
			}
			return len(k.Waiters) == 1 && k.Waiters[0].State == "retry"
		})
		deposition := by(r.owner(key))
		b.StartTimer()
		commanded := time.Now()
		if _, err := r.inspect.Depose(b.Context(), key, deposition); err != nil {
			b.Fatal(err)
		}
		select {
		case at := <-began:
			took = append(took, at.Sub(commanded))
		case <-time.After(limit):
			b.Fatal("the task does not begin")
		}
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(took[len(took)*p/100].Seconds()*1e3, "p"+strconv.Itoa(p)+"-ms")
	}
}
