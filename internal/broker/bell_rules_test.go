package broker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A bell has a connection for each queue, and for four queues at most.
func TestABellListensToFourQueues(t *testing.T) {
	t.Parallel()
	m, client := redistest.Virtual(t)
	for queues := 1; queues <= mostBells+1; queues++ {
		b := newBell(client, Options{Queues: numbered(queues)}, nil)
		t.Cleanup(b.close)
		if rings := b.client != nil; rings != (queues <= mostBells) {
			t.Errorf("with %d queues it rings: %v", queues, rings)
			continue
		} else if !rings {
			continue
		}
		if len(b.calls) != queues {
			t.Errorf("with %d queues it calls for %v", queues, b.calls)
		}
		if o := b.client.(*redis.Client).Options(); o.PoolSize != queues || o.MaxRetries != 0 || o.MinIdleConns != 0 || o.MaxIdleConns != 0 || o.MaxActiveConns != 0 {
			t.Errorf("with %d queues its connections are %d, with %d retries, %d, %d and %d", queues, o.PoolSize, o.MaxRetries, o.MinIdleConns,
				o.MaxIdleConns, o.MaxActiveConns)
		}
	}
	b := newBell(redistest.VirtualCluster(t, m), Options{Queues: numbered(1)}, nil)
	if b.client != nil || b.listen() != nil {
		t.Error("on a Cluster it rings")
	}
	b.close()
}

// The first time in vain counts for nothing, the next for the interval, and each one more for twice as long, up to a second.
func TestABellInVainIsQuietForLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		b := newBell(client, Options{Queues: numbered(1)}, nil)
		defer b.close()
		const interval = 300 * time.Millisecond
		quiet := func() time.Duration { return max(time.Until(b.quiet), 0) }
		for i, step := range []struct {
			found, early bool
			want         time.Duration
		}{
			{want: 0},
			{want: interval},
			{early: true, want: interval}, // it had rung before the pause
			{want: 2 * interval},
			{want: quietMost},
			{want: quietMost},
			{found: true, want: quietMost},
			{want: quietMost},
			{want: interval},
		} {
			b.begun = time.Now()
			b.rang = b.begun
			if step.early {
				b.rang = b.begun.Add(-1)
			}
			b.followed(step.found, interval)
			if got := quiet(); got != step.want {
				t.Errorf("step %d: it is quiet for %v, want %v", i, got, step.want)
			}
		}
		time.Sleep(interval - 1)
		if b.listen() != nil {
			t.Error("it is listened to while it is quiet")
		}
		b.rung <- struct{}{}
		time.Sleep(time.Nanosecond)
		rung := b.listen()
		if rung == nil || len(rung) != 0 || !b.begun.Equal(time.Now()) {
			t.Errorf("after that it is listened to with %d rings, since %v", len(rung), b.begun)
		}
		b.rung <- struct{}{}
		if rung := b.listen(); len(rung) != 1 {
			t.Error("a ring was lost although the bell was not quiet")
		}
	})
}

func TestABellThatFailsIsQuietForHalfAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		b := newBell(client, Options{Queues: numbered(1)}, nil)
		defer b.close()
		m.SetError("NOPERM")
		b.listen()
		b.waiting.Wait()
		m.SetError("")
		if len(b.rung) != 0 {
			t.Error("it has rung for a call that has failed")
		}
		time.Sleep(30*time.Second - 1)
		if b.listen() != nil {
			t.Error("it is listened to before half a minute is over")
		}
		time.Sleep(time.Nanosecond)
		if b.listen() == nil {
			t.Error("it is not listened to after half a minute")
		}
	})
}

// A pause goes on after a ring in vain if one fetch is a whole check. A fetch that fails tells nothing of the bell.
func TestAFetchInVainTellsOnTheBell(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		queues      int64
		err         error
		again, told bool
	}{
		{1, redis.Nil, true, true},
		{1, nil, false, false},
		{1, errors.New(oom), false, false},
		{2, redis.Nil, false, true},
		{2, errors.New(oom), false, false},
	} {
		for _, heard := range []bool{true, false} {
			b := &bell{}
			p := &pacer{queues: tc.queues, bell: b, interval: time.Second}
			p.heard.Store(heard)
			b.next = time.Millisecond
			if again := p.followed(tc.err); again != tc.again {
				t.Errorf("%d fetches a check, %v: the pause goes on: %v", tc.queues, tc.err, again)
			}
			var want time.Duration
			switch {
			case heard && tc.told:
				want = time.Second
			case heard && tc.err == nil:
				want = 0
			default:
				want = time.Millisecond
			}
			if b.next != want || p.heard.Load() {
				t.Errorf("%d fetches a check, %v, heard %v: it is quiet for %v next, want %v", tc.queues, tc.err, heard, b.next, want)
			}
		}
	}
}
