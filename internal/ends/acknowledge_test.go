package ends_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/subscription"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const (
	hash = "asynq:{default}:t:task"
	// archives is in place of asynq's own script.
	archives = `if redis.call('LREM', KEYS[1], 0, ARGV[1]) == 0 then
  return redis.error_reply('NOT FOUND')
end
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], 'state', 'archived')
return redis.status_reply('OK')`
)

// runs makes a task that is active in a run.
func runs(t *testing.T, client redis.Cmdable) {
	t.Helper()
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.HSet(t.Context(), hash, "state", "active", "msg", "the message", "pending_since", "run")
		p.RPush(t.Context(), "asynq:{default}:active", "task")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// acknowledge ends the task as a server does that shuts down.
func acknowledge(t *testing.T, client redis.UniversalClient, e *ends.Ending, run string) error {
	t.Helper()
	keys, args := e.Arguments([]string{"asynq:{default}:active", hash, "asynq:{default}:archived"}, []any{"task", "100"}, 1, run)
	return ends.Script(archives).Run(t.Context(), client, keys, args...).Err()
}

func TestAnEndIsNotedWithTheRunThatEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message, run string
		unheard      bool
		before       func(client redis.UniversalClient)
		fails        bool
	}{
		"the message is known":       {message: "the message", run: "run"},
		"the message is not known":   {run: "run"},
		"the run is not known":       {message: "the message"},
		"nobody hears of it":         {unheard: true, run: "run"},
		"it is another run":          {message: "the message", run: "another", fails: true},
		"asynq has ended it already": {run: "run", before: func(client redis.UniversalClient) { client.Del(t.Context(), "asynq:{default}:active") }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			runs(t, client)
			if c.before != nil {
				c.before(client)
			}
			o := ends.Options{Client: client, Logger: slog.New(slog.DiscardHandler)}
			if !c.unheard {
				o.Archived = func(context.Context, ends.Mark, []byte) error { return nil }
			}
			m := ends.Mark{End: ends.End{State: ends.Archived, Cause: "limit"}, Queue: "default", ID: "task", Run: "1", Message: c.message}
			began := time.Now()
			err := acknowledge(t, client, ends.NewTeller(o).Ending(m, "100"), c.run)
			took := time.Since(began)
			if c.fails != (err != nil) || c.fails && !strings.Contains(err.Error(), "NOT FOUND") {
				t.Fatalf("it fails: %v, want %v", err, c.fails)
			}
			state := map[bool]string{true: "active", false: "archived"}[c.fails]
			told := map[bool]string{true: "", false: "100 limit"}[c.fails || c.unheard]
			if fields := client.HMGet(t.Context(), hash, "state", "railtoken:ended").Val(); fields[0] != state || told != "" && fields[1] != told || told == "" && fields[1] != nil {
				t.Errorf("it is %q, want %q, %q", fields, state, told)
			}
			marks, err := client.ZRangeWithScores(t.Context(), m.Key(), 0, -1).Result()
			if err != nil || len(marks) != len(told)/9 {
				t.Fatalf("the marks are %v, %v", marks, err)
			}
			for _, z := range marks {
				if m.Message = "the message"; z.Member != m.String() {
					t.Errorf("its mark is %q, want %q", z.Member, m.String())
				}
				if due := time.UnixMilli(int64(z.Score)).Sub(began.Add(ends.Unclaimed)); due < -time.Second || due > took+time.Second {
					t.Errorf("others may tell it %v too late", due)
				}
			}
		})
	}
}

// waiters returns Waiters until the end of the test.
func waiters(t *testing.T, client redis.UniversalClient) *ends.Waiters {
	t.Helper()
	hints := subscription.New(client)
	w := ends.NewWaiters(client, hints)
	t.Cleanup(func() {
		w.Close()
		if err := hints.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// wait has somebody wait for the task who has a client of their own.
func wait(t *testing.T, client redis.UniversalClient) <-chan error {
	t.Helper()
	w := waiters(t, client)
	ended := make(chan error, 1)
	go func() {
		got, err := w.Wait(t.Context(), "default", "task", func(message string) error {
			if message != "the message" {
				return fmt.Errorf("the message is %q", message)
			}
			return nil
		})
		if text := fmt.Sprintf("%s %s %s %q", got.State, got.Cause, got.Result, got.Message); err == nil && text != `archived limit 42 "the message"` {
			err = errors.New(text)
		}
		ended <- err
	}()
	return ended
}

// A notice comes to everybody who waits, before the next look at the task.
func TestEverybodyWhoWaitsHearsOfTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		runs(t, client)
		client.HSet(t.Context(), hash, "result", "42")
		first, second := wait(t, redistest.VirtualClient(t, m)), wait(t, redistest.VirtualClient(t, m))
		time.Sleep(1500 * time.Millisecond) // virtual: both look again in half a second
		if n := client.Exists(t.Context(), ends.AwaitedKey("default")).Val(); n != 1 {
			t.Error("no server is told that somebody waits for tasks of the queue")
		}
		if channels := client.HGet(t.Context(), hash, "railtoken:awaited").Val(); len(strings.Fields(channels)) != 2 {
			t.Errorf("after two looks of each the notices go to %q", channels)
		}
		o := ends.Options{Client: client, Archived: func(context.Context, ends.Mark, []byte) error { return nil }}
		e := ends.NewTeller(o).Ending(ends.Mark{End: ends.End{State: ends.Archived, Cause: "limit"}, Queue: "default", ID: "task"}, "100")
		began := time.Now()
		if err := acknowledge(t, client, e, "run"); err != nil {
			t.Fatal(err)
		}
		for _, ended := range []<-chan error{first, second} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("they hear of it after %v", took)
		}
		if err := <-wait(t, client); err != nil {
			t.Errorf("who comes later is told: %v", err)
		}
	})
}

// A task is followed to the queue in which it waits now, also when Redis does not tell at first which that is.
func TestATaskThatHasMovedDoesNotCountAsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		runs(t, client)
		own := redistest.VirtualClient(t, m)
		var asked [2]atomic.Int32
		own.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			i := slices.Index([]string{"smembers", "hmget"}, cmd.Name())
			if i >= 0 && asked[i].Add(1) <= 2 {
				return redistest.Fail(cmd, errors.New("the connection broke"))
			}
			return next(ctx, cmd)
		}))
		w := waiters(t, own)
		ended := make(chan error, 1)
		go func() {
			got, err := w.Wait(t.Context(), "default", "task", func(string) error { return nil })
			if err == nil && got.State != ends.Completed {
				err = fmt.Errorf("it is %v", got.State)
			}
			ended <- err
		}()
		time.Sleep(1500 * time.Millisecond)
		const moved = "asynq:{slow}:t:task"
		_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.SAdd(t.Context(), "asynq:queues", "default", "slow")
			p.Rename(t.Context(), hash, moved)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		client.HSet(t.Context(), moved, "state", "completed")
		if err := redistest.Receive(t, ended, time.Minute); err != nil {
			t.Error(err)
		}
		if n, m := asked[0].Load(), asked[1].Load(); n <= 2 || m <= 2 {
			t.Errorf("the task was looked for %d and %d times, so not all calls failed that should", n, m)
		}
	})
}
