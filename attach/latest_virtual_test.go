package attach_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A price changes twice in each Quiet, so it is never quiet. It must run all the same, each Most.
func TestAStreamOfPricesRunsEachMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		a, err := attach.New(redistest.Patient(t, m), asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: time.Second},
			attach.Options{Logger: slog.New(slog.DiscardHandler)})
		ok(t, err)
		type run struct {
			price string
			at    time.Time
		}
		runs := make(chan run, 100)
		var long atomic.Bool
		s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		ok(t, s.Start(a.Lock(ofArticle)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			runs <- run{string(task.Payload()), time.Now()}
			if long.Load() {
				time.Sleep(30 * time.Second)
			}
			return nil
		}))))
		p, err := attach.NewProducer(client, attach.ProducerOptions{})
		ok(t, err)
		put := func(price string) {
			t.Helper()
			_, err := p.EnqueueContext(t.Context(), asynq.NewTask("price", []byte(price)), attach.Keys("article:1"),
				attach.Latest{Quiet: 4 * time.Second, Most: 20 * time.Second})
			ok(t, err)
		}
		began := time.Now()
		n := 0
		for ; time.Since(began) < 200*time.Second; time.Sleep(2 * time.Second) {
			n++
			put(fmt.Sprint(n))
		}
		time.Sleep(10 * time.Second)
		last := began
		count := len(runs)
		for range count {
			r := <-runs
			if gap := r.at.Sub(last); gap > 20*time.Second+2*time.Second+2*time.Second { // a second for asynq's interval, one for its whole seconds
				t.Errorf("price %s runs %v after the one before", r.price, gap)
			}
			if last = r.at; len(runs) == 0 && r.price != fmt.Sprint(n) {
				t.Errorf("price %s runs last of %d", r.price, n)
			}
		}
		if count < 9 || count > 12 {
			t.Errorf("%d of %d prices run in 10 x Most", count, n)
		}

		// Prices that come while one runs need one run more.
		long.Store(true)
		put("a")
		time.Sleep(8 * time.Second)
		for _, price := range []string{"b", "c", "d"} {
			put(price)
		}
		time.Sleep(2 * time.Minute)
		if len(runs) != 2 {
			t.Fatalf("%d runs, want two", len(runs))
		}
		if first, second := <-runs, <-runs; first.price != "a" || second.price != "d" || second.at.Sub(first.at) > 36*time.Second {
			t.Errorf("%s runs, and %s %v later", first.price, second.price, second.at.Sub(first.at))
		}
		s.Shutdown()
		ok(t, p.Close())
		ok(t, a.Close())
	})
}
