package redistest_test

import (
	"errors"
	"strconv"
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
