package holdings_test

import (
	"context"
	"errors"
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
func TestASilentWorkerLapsesBeforeItReportsAgain(t *testing.T) {
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
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(order, ", "); got != "report, lapse, report" {
			t.Errorf("in this order: %s", got)
		}
	})
}
