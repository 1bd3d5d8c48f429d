package ends_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestACallbackIsCalledTenTimesAtMost(t *testing.T) {
	t.Parallel()
	t.Run("Redis answers", func(t *testing.T) { t.Parallel(); callTenTimes(t, 0) })
	t.Run("Redis cannot be asked for the result for a while", func(t *testing.T) { t.Parallel(); callTenTimes(t, 2*time.Minute) })
}

func callTenTimes(t *testing.T, away time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		calls, gaveUp := 0, make(chan int, 2)
		began := time.Now()
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "hget" && time.Since(began) < away {
				return redistest.Fail(cmd, errors.New("connection refused"))
			}
			return next(ctx, cmd)
		}))
		teller := ends.NewTeller(ends.Options{
			Client: client, Logger: slog.New(slog.DiscardHandler),
			Completed: func(context.Context, ends.Mark, []byte) error { calls++; return errors.New("no network") },
			GaveUp:    func(ends.Mark, error) { gaveUp <- calls },
		})
		teller.Start([]string{"default"})
		m := ends.Mark{End: ends.End{State: ends.Completed}, Queue: "default", ID: "task", Run: "1", At: began, Message: "\xff\n"}
		if err := client.ZAdd(t.Context(), m.Key(), redisZ(began.Add(ends.Unclaimed), m)).Err(); err != nil {
			t.Fatal(err)
		}
		teller.Tell(m.String(), m, began)
		if n := <-gaveUp; n != 10 {
			t.Errorf("%d calls", n)
		}
		if took := time.Since(began); took < away+time.Minute || took > away+5*time.Minute {
			t.Errorf("in %v", took)
		}
		time.Sleep(10 * time.Minute) // virtual
		if n := client.Exists(t.Context(), m.Key()).Val(); n != 0 || calls != 10 {
			t.Errorf("%d sets of marks are left, %d calls", n, calls)
		}
		teller.Close(time.Now().Add(time.Second))
	})
}

// A callback that takes longer than a mark is kept is not told by another server meanwhile, and ends that wait for it in memory
// are. Half of the marks are those of a server that has ended: they are taken over.
func TestASlowCallbackKeepsItsMark(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		told := map[string]int{}
		var tellers [2]*ends.Teller
		done := make(chan string, 100)
		for i := range tellers {
			tellers[i] = ends.NewTeller(ends.Options{
				Client: client, Logger: slog.New(slog.DiscardHandler),
				Completed: func(_ context.Context, m ends.Mark, _ []byte) error {
					time.Sleep(20 * time.Second) // virtual
					done <- m.ID
					return nil
				},
			})
			tellers[i].Start([]string{"default"})
		}
		began := time.Now()
		const tasks = 64 // twice as many as callbacks of both
		for i := range tasks {
			m := ends.Mark{End: ends.End{State: ends.Completed}, Queue: "default", ID: string(rune('A' + i)), At: began}
			due := began
			if i%2 == 0 {
				due = began.Add(ends.Unclaimed)
			}
			if err := client.ZAdd(t.Context(), m.Key(), redisZ(due, m)).Err(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				tellers[0].Tell(m.String(), m, began)
			}
		}
		for range tasks {
			told[<-done]++
		}
		time.Sleep(time.Minute)
		if len(told) != tasks || len(done) != 0 {
			t.Errorf("%d of %d are told, %d twice", len(told), tasks, len(done))
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("in %v: only one of the servers tells", took)
		}
		for _, teller := range tellers {
			teller.Close(time.Now().Add(time.Second))
		}
	})
}

// afterPipelines calls do when a pipeline has been answered.
type afterPipelines struct{ do func() }

func (afterPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (afterPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (a afterPipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		err := next(ctx, all)
		if all[0].Name() == "hmget" {
			a.do()
		}
		return err
	}
}

// Another server has told the end by the time that one notes what it has read before.
func TestAnArchivedTaskIsToldByOneServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		read, told := make(chan struct{}), make(chan struct{})
		calls := make(chan string, 10)
		for name, wait := range map[string]func(){
			"fast": func() { <-read },
			"slow": func() { close(read); <-told },
		} {
			c := redistest.VirtualClient(t, m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			c.AddHook(afterPipelines{sync.OnceFunc(wait)})
			teller := ends.NewTeller(ends.Options{
				Client: c, Logger: slog.New(slog.DiscardHandler), GaveUp: func(ends.Mark, error) {},
				Archived: func(context.Context, ends.Mark, []byte) error { calls <- name; return nil },
				Found:    func(string, []byte, bool) ends.End { return ends.End{State: ends.Archived, Cause: ends.ByHand} },
			})
			teller.Start([]string{"default"})
			t.Cleanup(func() { teller.Close(time.Now().Add(time.Second)) })
		}
		time.Sleep(time.Second)                                                                        // virtual: both have looked once
		client.HSet(t.Context(), hash, "msg", "", "state", "archived", "railtoken:ended", "100 limit") // it was run again since then
		client.ZAdd(t.Context(), "asynq:{default}:archived", redis.Z{Score: float64(time.Now().Unix()), Member: "task"})
		if name := <-calls; name != "fast" {
			t.Errorf("the %s server tells it first", name)
		}
		time.Sleep(time.Second) // its mark is removed
		close(told)
		time.Sleep(time.Minute)
		if len(calls) > 0 {
			t.Errorf("the %s server tells it again", <-calls)
		}
	})
}

func TestAMarkIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	m := ends.Mark{
		End:   ends.End{State: ends.Archived, Cause: "limit", Detail: []byte(`{"a":"\n"}`), By: "ann\n", Why: "w"},
		Queue: "q}", ID: "i\n", Run: "r", At: time.Unix(1, 2), Tries: 3, Message: "\n\xff\n",
	}
	got, err := ends.ParseMark(m.String())
	if err != nil || got.String() != m.String() || got.Message != m.Message || got.By != m.By || got.ID != m.ID {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{}", "x\ny"} {
		if _, err := ends.ParseMark(text); err == nil {
			t.Errorf("%q is a mark", text)
		}
	}
}
