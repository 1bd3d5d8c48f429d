package redistest_test

import (
	"errors"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestVirtualKeyExpiresAtExactlyItsTime(t *testing.T) {
	t.Parallel()
	realStart := time.Now()
	synctest.Test(t, func(t *testing.T) {
		_, c := redistest.Virtual(t)
		ctx := t.Context()
		const ttl = 5*time.Hour + 7*time.Millisecond
		if err := c.Set(ctx, "k", "v", ttl).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl - time.Nanosecond)
		if got, err := c.Get(ctx, "k").Result(); got != "v" {
			t.Errorf("1 ns before its end k is %q, %v", got, err)
		}
		time.Sleep(time.Nanosecond)
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("at its end k still answers: %v", err)
		}
	})
	if took := time.Since(realStart); took > time.Minute {
		t.Errorf("five virtual hours took %v of real time", took)
	}
}

func TestVirtualPubSub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := redistest.Virtual(t)
		ctx := t.Context()
		sub := redistest.VirtualClient(t, m).Subscribe(ctx, "ch")
		defer sub.Close()
		messages := sub.Channel()
		synctest.Wait() // until subscribed

		if n, err := c.Publish(ctx, "ch", "direct").Result(); err != nil || n != 1 {
			t.Fatalf("published to %d, %v", n, err)
		}
		if got := (<-messages).Payload; got != "direct" {
			t.Errorf("received %q", got)
		}

		time.Sleep(time.Hour) // the health check of the subscription must survive idle time
		script := redis.NewScript(`return redis.call('PUBLISH', KEYS[1], ARGV[1])`)
		if n, err := script.Run(ctx, c, []string{"ch"}, "from a script").Int(); err != nil || n != 1 {
			t.Fatalf("the script published to %d, %v", n, err)
		}
		if got := (<-messages).Payload; got != "from a script" {
			t.Errorf("received %q", got)
		}
	})
}

func TestVirtualScriptTimeFollowsTheVirtualClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := redistest.Virtual(t)
		script := redis.NewScript(`return redis.call('TIME')`)
		read := func() time.Time {
			t.Helper()
			got, err := script.Run(t.Context(), c, nil).StringSlice()
			if err != nil || len(got) != 2 {
				t.Fatalf("TIME gave %q, %v", got, err)
			}
			sec, _ := strconv.ParseInt(got[0], 10, 64)
			usec, _ := strconv.ParseInt(got[1], 10, 64)
			return time.Unix(sec, usec*1000)
		}
		for range 3 {
			if got, want := read(), time.Now().Truncate(time.Microsecond); !got.Equal(want) {
				t.Errorf("TIME is %v, the bubble's clock %v", got, want)
			}
			time.Sleep(90*time.Minute + 123*time.Microsecond)
		}
	})
}

func TestVirtualServesManyCallersInManyBubbles(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := redistest.Virtual(t)
				var wg sync.WaitGroup
				for range 200 {
					wg.Go(func() {
						for range 5 {
							if err := c.Incr(t.Context(), "n").Err(); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Second)
						}
					})
				}
				wg.Wait()
				if n, err := c.Get(t.Context(), "n").Int(); err != nil || n != 1000 {
					t.Errorf("counted %d, %v", n, err)
				}
			})
		})
	}
}

func TestVirtualRefusesDialsAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := redistest.Virtual(t)
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		m.Close()
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Error("the open connection still answers")
		}
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after Close the client says %v", err)
		}
	})
}

func TestVirtualClientTakesOptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := redistest.Virtual(t)
		other := redistest.VirtualClient(t, m, func(o *redis.Options) { o.DB = 1 })
		if err := other.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Exists(t.Context(), "k").Result(); err != nil || n != 0 {
			t.Errorf("database 0 has %d of database 1's keys, %v", n, err)
		}
	})
}
