package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAServerThatIsNotReadyFetchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		enqueue(t, client, "a", "")
		var unready error
		conn := New(client, Options{Queues: numbered(1), Slots: 1, Tasks: &witness{}, Ready: func(context.Context) error { return unready }})
		unready = errors.New("the locks are elsewhere")
		if err := conn.EvalSha(t.Context(), dequeue, queueKeys).Err(); !errors.Is(err, unready) {
			t.Errorf("a fetch is answered with %v", err)
		}
		if n := client.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 1 {
			t.Errorf("%d tasks are pending", n)
		}
		unready = nil
		if err := conn.EvalSha(t.Context(), dequeue, queueKeys).Err(); err != nil {
			t.Errorf("a server that is ready fetches nothing: %v", err)
		}
	})
}

// It says so once, and acknowledges what runs.
func TestAServerWithAnotherAsynqFetchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, known := range []string{dequeue, "5678"} {
			var log strings.Builder
			sent := 0
			conn := New(&answers{look: func() error {
				sent++
				return nil
			}}, Options{Queues: numbered(1), Tasks: &witness{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			for _, sum := range []string{"1234", known} { // the first is not known
				if err := conn.EvalSha(t.Context(), sum, queueKeys).Err(); !errors.Is(err, ErrAsynq) {
					t.Errorf("a fetch is answered with %v", err)
				}
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 || strings.Contains(log.String(), "level=WARN") || sent != 0 {
				t.Errorf("%d scripts were sent, and the log says %s", sent, &log)
			}
		}
		New(&answers{}, Options{Queues: numbered(1)}).warnForeign(t.Context(), "1234") // without a Logger
	})
}

// What Redis says of itself is no outage.
func TestOnlyACallThatIsNotCarriedOutCountsAsMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			err    error
			missed bool
		}{
			{nil, false},
			{redis.Nil, false},
			{redis.ErrNoScript, false},
			{errMoving, false},
			{errors.New("connection refused"), true},
			{errors.New(oom), true},
		} {
			for name, sum := range map[string]string{"a fetch": dequeue, "another call": sumNamed(t, "schedule")} {
				conn := New(&answers{look: func() error { return tc.err }}, Options{Queues: numbered(1)})
				conn.stopPauses()
				conn.EvalSha(t.Context(), sum, queueKeys)
				if missed := !conn.recovery.outage.IsZero(); missed != tc.missed {
					t.Errorf("%s that ends with %v is missed: %v", name, tc.err, missed)
				}
			}
		}
	})
}

// stopPauses has an idle server pause no more.
func (c *Conn) stopPauses() { c.pacer.interval = 0 }

// asynq's recoverer gets an empty list then, and what Redis has answered in every other case.
func TestAWithheldLookIsAnsweredAsEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecoverer()
		r.recovery.failed(time.Now(), time.Time{})
		if found, err := r.Conn.EvalSha(t.Context(), listLeaseExpired, []string{"asynq:{q}:lease"}).Slice(); err != nil || len(found) != 0 {
			t.Errorf("a look is answered with %v, %v", found, err)
		}
		if found, err := r.Conn.EvalSha(t.Context(), listLeaseExpired, nil).Slice(); err != nil || len(found) != 1 {
			t.Errorf("one without a queue is answered with %v, %v", found, err)
		}
		r.down = errors.New(oom)
		if err := r.Conn.EvalSha(t.Context(), listLeaseExpired, []string{"asynq:{other}:lease"}).Err(); !errors.Is(err, r.down) {
			t.Errorf("one that fails is answered with %v", err)
		}
		r.down = nil
		if r.finds("other") {
			t.Error("a look that has failed was the one that finds nothing")
		}
	})
}

// An idle server that a wake ends its pause of fetches at once, without a look. A fetch in vain lets the pause go on, and one that fails
// has its own.
func TestAWokenServerFetchesWithoutALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := newVirtual(t)
		woken := NewWakes(1)
		conn := New(client, Options{Queues: numbered(2), Slots: 2, Tasks: &witness{}, Interval: time.Hour, Wakes: woken})
		defer conn.Silence()
		if conn.pacer.queues != 1 {
			t.Errorf("a check is %d fetches, want one for all queues", conn.pacer.queues)
		}
		var names []string
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "exists" || cmd.Name() == "evalsha" {
				names = append(names, cmd.Name())
			}
			return next(ctx, cmd)
		}))
		conn.look.fetched(true)
		began := time.Now()
		fetched := make(chan error, 1)
		go func() { fetched <- conn.EvalSha(t.Context(), dequeue, queueKeys).Err() }()
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(names, []string{"exists"}) {
			t.Errorf("before its pause the server sends %v", names)
		}
		names = nil
		woken.Wake() // in vain
		synctest.Wait()
		if !slices.Contains(names, "evalsha") || slices.Contains(names, "exists") {
			t.Errorf("after a wake the server sends %v", names)
		}
		m.SetError("OOM")
		woken.Wake()
		if err := <-fetched; err == nil || time.Since(began) != time.Second+pauseFirst {
			t.Errorf("after %v the fetch is answered with %v", time.Since(began), err)
		}
		m.SetError("")
	})
}

// A server that shuts down waits for a second for what is under way.
func TestADrainWaitsForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		hangs := make(chan struct{})
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				<-hangs
			}
			return next(ctx, cmd)
		}))
		conn := New(client, Options{Queues: numbered(1), Slots: 1, Tasks: &witness{}})
		landed := conn.depart(t.Context(), "default")
		synctest.Wait()
		began := time.Now()
		conn.drain()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it has taken %v", took)
		}
		close(hangs)
		<-landed
	})
}

// What is not asynq's passes as it is.
func TestOtherCallsPassUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		conn := New(client, Options{Queues: numbered(1)})
		client.ZAdd(t.Context(), "mine", redis.Z{Member: "a", Score: 1})
		if err := conn.ZAddXX(t.Context(), "mine", redis.Z{Member: "a", Score: 2}, redis.Z{Member: "b", Score: 2}).Err(); err != nil {
			t.Error(err)
		}
		if all := client.ZRangeWithScores(t.Context(), "mine", 0, -1).Val(); len(all) != 1 || all[0].Score != 2 {
			t.Errorf("in the set are %v", all)
		}
		if text, err := answer(t.Context(), "1234", nil).Text(); text != "OK" || err != nil {
			t.Errorf("a script that was not sent is answered with %q, %v", text, err)
		}
		firings := NewFirings(conn, "ticks", 1, func() bool { return true })
		if n, err := redis.NewScript("return 7").Run(t.Context(), firings, nil).Int(); n != 7 || err != nil {
			t.Errorf("a script of a user is answered with %d, %v", n, err)
		}
	})
}

func TestAnEnqueueWaitsForTheSlotOfItsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := newVirtual(t)
		began := time.Now()
		tasks := asynq.NewClientFromRedisClient(NewEnqueuer(client, func(ctx context.Context, _ Enqueuing) *redis.Cmd {
			if time.Since(began) < settleLimit-2*time.Second {
				return answer(ctx, "", errMoving)
			}
			return nil
		}))
		if _, err := tasks.Enqueue(asynq.NewTask("test", nil)); err != nil || client.LLen(t.Context(), "asynq:{default}:pending").Val() != 1 {
			t.Error(err)
		}
	})
}

// The fake that asynq is tried on answers as Redis would, and notes scripts that are not known.
func TestTheFakeForAsynqAnswersAsRedisDoes(t *testing.T) {
	t.Parallel()
	d := &dummy{seen: map[string]bool{}, acknowledged: make(chan struct{}, 1)}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}) // nothing is dialed
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(d)
	ctx := t.Context()
	if n, err := client.Incr(ctx, "n").Result(); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if text, err := client.Set(ctx, "k", "v", 0).Result(); text != "OK" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := client.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "n").Err() }); !errors.Is(err, errDummy) {
		t.Error(err)
	}
	if err := client.EvalSha(ctx, dequeue, queueKeys).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("an empty queue: %v", err)
	}
	if n, err := client.EvalSha(ctx, sumNamed(t, "enqueue"), []string{"asynq:{default}:t:a", "asynq:{default}:pending"}, []byte("message"), "a").Int(); n != 1 || err != nil {
		t.Errorf("an enqueue: %d, %v", n, err)
	}
	if text, err := client.EvalSha(ctx, dequeue, queueKeys).Text(); text != "message" || err != nil {
		t.Errorf("a fetch: %q, %v", text, err)
	}
	if found, err := client.EvalSha(ctx, listLeaseExpired, []string{"asynq:{default}:lease"}).Slice(); len(found) != 0 || err != nil {
		t.Errorf("the recoverer: %v, %v", found, err)
	}
	if n, err := client.EvalSha(ctx, "1234", []string{"mine"}).Int(); n != 0 || err != nil || d.other {
		t.Errorf("a script of a user: %d, %v, another asynq's: %v", n, err, d.other)
	}
	client.EvalSha(ctx, "1234", queueKeys)
	if !d.other {
		t.Error("a script that is not known is taken for asynq's own")
	}
	if !d.seen["dequeue"] || !d.seen["enqueue"] || !d.seen["listLeaseExpired"] || len(d.seen) != 3 {
		t.Errorf("known are %v", d.seen)
	}
}

func TestAVerdictIsThatOfTheProcess(t *testing.T) { // not beside others: they ask for it
	recognised.mu.Lock()
	sure, err := recognised.sure, recognised.err
	recognised.sure, recognised.err = true, ErrAsynq
	recognised.mu.Unlock()
	if got := Recognise(); !errors.Is(got, ErrAsynq) {
		t.Errorf("it is %v", got)
	}
	recognised.mu.Lock()
	recognised.sure, recognised.err = sure, err
	recognised.mu.Unlock()
}
