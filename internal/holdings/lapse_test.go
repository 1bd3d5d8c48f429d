package holdings_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Otherwise a lease that others have taken would count as valid until its next renewal.
func TestASilentWorkerLapsesBeforeItCountsAsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		var down atomic.Bool
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			if len(order) == 0 || order[len(order)-1] != what {
				order = append(order, what)
			}
		}
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if down.Load() {
				return redistest.Fail(cmd, errors.New("connection refused"))
			}
			err := next(ctx, cmd)
			if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
				note("report")
			}
			return err
		}))
		r := holdings.New(client, &holdings.Set{}, holdings.Worker{}, holdings.Options{
			Store: func(context.Context) (string, bool) { return "x", true },
			Lapse: 12 * time.Second, Lapsed: func() { note("lapse") },
		})
		starts(t, r, false)
		defer r.Close()
		for _, away := range []time.Duration{4 * time.Second, 20 * time.Second} {
			time.Sleep(time.Minute)
			down.Store(true)
			time.Sleep(away)
			down.Store(false)
			time.Sleep(3 * time.Second)
			if !r.Reports(4 * time.Second) {
				t.Errorf("3 s after an outage of %v it has been silent for %v", away, r.Silent())
			}
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(order, ", "); got != "report, lapse, report" {
			t.Errorf("in this order: %s", got)
		}
	})
}

// Each of them would read the signs of all others each 5 s.
func TestNobodyIsDeadAmongTooManyWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		var crowded atomic.Int64
		r := holdings.New(client, &holdings.Set{}, holdings.Worker{}, holdings.Options{
			Store:   func(context.Context) (string, bool) { return "x", true },
			After:   10 * time.Second,
			Crowded: func() { crowded.Add(1) },
		})
		starts(t, r, false)
		defer r.Close()
		add := func(n int) {
			for i := range n {
				client.ZAdd(t.Context(), holdings.Workers, redis.Z{Score: float64(time.Now().UnixMilli()), Member: fmt.Sprintf("DEAD%04d10x", i)})
			}
		}
		for i := range holdings.MostWorkers { // those that have ended long ago count no more
			client.ZAdd(t.Context(), holdings.Workers, redis.Z{Score: float64(time.Now().Add(-4 * time.Minute).UnixMilli()), Member: fmt.Sprintf("GONE%04d10x", i)})
		}
		add(holdings.MostWorkers - 1)
		time.Sleep(20 * time.Second)
		if n := len(r.Life().Dead()); n != holdings.MostWorkers-1 || crowded.Load() != 0 {
			t.Errorf("%d processes are dead, crowded %d times", n, crowded.Load())
		}
		add(holdings.MostWorkers)
		time.Sleep(time.Minute)
		if n := len(r.Life().Dead()); n != 0 || crowded.Load() != 1 {
			t.Errorf("in a crowd %d processes are dead, crowded %d times", n, crowded.Load())
		}
		time.Sleep(3 * time.Minute) // the signs of the dead are old by now
		if n := len(r.Life().Dead()); n != 0 || crowded.Load() != 1 {
			t.Errorf("after the crowd %d processes are dead, crowded %d times", n, crowded.Load())
		}
		if !r.Reports(10 * time.Second) {
			t.Error("the worker itself does not report")
		}
	})
}

// Redis has carried it out in time, or not: only the answer tells.
func TestAReportThatIsAnsweredTooLateLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		var slow atomic.Bool
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if slow.Load() && strings.HasPrefix(cmd.Name(), "eval") {
				time.Sleep(1900 * time.Millisecond)
			}
			return err
		}))
		var lapses atomic.Int64
		var r *holdings.Reporter
		r = holdings.New(client, &holdings.Set{}, holdings.Worker{}, holdings.Options{
			Store: func(context.Context) (string, bool) { return "x", true },
			Lapse: 6 * time.Second, Lapsed: func() {
				lapses.Add(1)
				if r.Reports(6 * time.Second) {
					t.Error("it counts as heard before it has lapsed")
				}
			},
		})
		starts(t, r, false)
		defer r.Close()
		time.Sleep(6 * time.Second)
		if lapses.Load() != 0 {
			t.Errorf("it has lapsed %d times without a silence", lapses.Load())
		}
		slow.Store(true) // the next report is sent 5 s after the last one, and answered after 6.9 s
		time.Sleep(6 * time.Second)
		if lapses.Load() != 1 {
			t.Errorf("it has lapsed %d times", lapses.Load())
		}
	})
}
