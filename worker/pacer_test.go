package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/middleware"
)

// counted counts the fetches that reach Redis.
type counted struct{ fetches atomic.Int64 }

func (c *counted) hook() hook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if kindOf(cmd) == fetch {
			c.fetches.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestAnIdleWorkerLooksNoMoreOftenThanItsInterval(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{1, 2, 5} {
		for _, fetchers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d queues, %d fetchers", queues, fetchers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var c counted
					cfg := Config{TaskCheckInterval: 50 * time.Millisecond, Fetchers: fetchers, Concurrency: 6, Queues: map[string]int{}}
					for i := range queues {
						cfg.Queues[fmt.Sprint("q", i)] = i + 1
					}
					w, _ := virtual(t, cfg, c.hook())
					handle(t, w, "work", nothing)
					start(t, w)
					time.Sleep(time.Second)
					const seconds = 20 // then 34 a second would be eight standard deviations from the mean
					before := c.fetches.Load()
					time.Sleep(seconds * time.Second)
					// asynq's own pause is from half the interval to one and a half: the interval on average. Each queue has a delay queue.
					got := float64(c.fetches.Load()-before) / seconds
					each := got / float64(2*queues*fetchers)
					t.Logf("%.0f fetches a second, %.1f looks of each server", got, each)
					if each > 1.7*20 || each < 20 {
						t.Errorf("each server looks %.1f times a second, want once in a third of 50ms to 50ms: about 30 times", each)
					}
				})
			})
		}
	}
}

func TestATaskThatIsWokenStartsAtOnce(t *testing.T) {
	t.Parallel()
	for _, fetchers := range []int{1, 3} {
		t.Run(fmt.Sprint(fetchers, " fetchers"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, m := virtual(t, Config{
					TaskCheckInterval: 10 * time.Second, DelayedTaskCheckInterval: time.Hour, Fetchers: fetchers, Concurrency: 6,
					Strategy: middleware.Requeue{Delay: time.Hour, OnDeck: -1}, Queues: map[string]int{"default": 2, "other": 1},
				})
				started, ended := make(chan time.Time, 1), make(chan time.Time, 1)
				release := make(chan struct{})
				handle(t, w, "work", func(context.Context, order) error {
					started <- time.Now()
					<-release
					ended <- time.Now()
					return nil
				})
				start(t, w)
				const tasks = 30
				for range tasks {
					enqueue(t, m, orderTask(t, "work", "1"))
				}
				<-started
				time.Sleep(time.Minute) // the others have parked
				var worst, all time.Duration
				for range tasks - 1 {
					release <- struct{}{}
					at := <-ended
					took := (<-started).Sub(at)
					worst, all = max(worst, took), all+took
					time.Sleep(11 * time.Second) // the fetchers have come to rest
				}
				release <- struct{}{}
				<-ended
				t.Logf("a woken task started after %v on average, %v at most", all/(tasks-1), worst)
				if worst > 10*time.Millisecond {
					t.Errorf("a task that was woken started after %v, want a few milliseconds", worst)
				}
			})
		})
	}
}

// looker fetches through a pacer as asynq's server does: from each queue, until one has a task.
type looker struct {
	*pacer
	answer func() error
	looks  int
}

func newLooker(interval time.Duration, queues int, stopping <-chan struct{}, answer func() error) *looker {
	l := &looker{answer: answer}
	l.pacer = newPacer(nil, interval, queues, stopping, newWakes(1))
	l.UniversalClient = &answers{look: func() error {
		l.looks++
		return l.answer()
	}}
	return l
}

// answers is a client that answers scripts as it is told.
type answers struct {
	redis.UniversalClient
	look func() error
}

func (a *answers) EvalSha(ctx context.Context, sum string, names []string, _ ...any) *redis.Cmd {
	args := []any{"evalsha", sum, len(names)}
	for _, name := range names {
		args = append(args, name)
	}
	cmd := redis.NewCmd(ctx, append(args, "argument")...)
	cmd.SetErr(a.look())
	return cmd
}

// fetch fetches from the i-th queue, and reports whether there was a task.
func (l *looker) fetch(i int) bool {
	name := func(part string) string { return fmt.Sprintf("asynq:{%d}:%s", i, part) }
	return l.EvalSha(context.Background(), "sum", []string{name("pending"), name("paused"), name("active"), name("lease")}).Err() == nil
}

// sweep looks at each queue once.
func (l *looker) sweep(queues int) {
	for i := range queues {
		if l.fetch(i) {
			return
		}
	}
}

func empty() error { return redis.Nil }

func TestAPauseIsAThirdOfTheIntervalAtLeastAndTheIntervalAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 90 * time.Millisecond
		p := newLooker(interval, 3, nil, empty)
		least, most := time.Hour, time.Duration(0)
		for range 500 {
			began := time.Now()
			p.sweep(3)
			took := time.Since(began) + 2*lookAgain
			least, most = min(least, took), max(most, took)
		}
		if least < interval/3 || most > interval || most-least < interval/2 {
			t.Errorf("the pauses are from %v to %v, want from %v to %v", least, most, interval/3, interval)
		}
		if got := p.looks; got != 1500 {
			t.Errorf("%d fetches in 500 looks", got)
		}
	})
}

func TestAWakeEndsThePauseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newLooker(time.Hour, 2, nil, empty)
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			p.woken.wake()
		}()
		p.sweep(2)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the pause took %v, want the second until the wake", took)
		}
	})
}

func TestAWakeBetweenTwoFetchesOfALookIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newLooker(time.Hour, 2, nil, nil)
		n := 0
		p.answer = func() error {
			n++
			if n == 1 {
				p.woken.wake() // into the first queue, which was just found empty
			}
			return redis.Nil
		}
		began := time.Now()
		p.sweep(2)
		if took := time.Since(began); took != 0 {
			t.Errorf("the pause took %v although a task was woken during the look", took)
		}
		p.sweep(2)
		if took := time.Since(began); took < time.Hour/3-2*lookAgain {
			t.Errorf("one wake has ended two pauses, within %v", took)
		}
	})
}

// Two servers whose looks overlap: the one that has not finished its own must not be held, and not take the wake.
func TestAServerIsHeldBetweenItsLooksOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newLooker(time.Hour, 2, nil, empty), newLooker(time.Hour, 2, nil, empty)
		b.woken = a.woken
		began := time.Now()
		b.fetch(0)
		go func() {
			time.Sleep(time.Minute)
			b.woken.wake()
		}()
		a.fetch(0)
		if took := time.Since(began); took != 0 {
			t.Fatalf("a server that has looked at one queue of two is held, for %v", took)
		}
		a.fetch(1)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the pause after the whole look took %v, want the minute until the wake", took)
		}
	})
}

// As many tasks as there are servers may be woken while none of them pauses; each server may have a slot for one of them only.
func TestEachServerHearsOfAWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := newWakes(3)
		for range 5 {
			woken.wake()
		}
		began := time.Now()
		for range 3 {
			p := newLooker(time.Hour, 1, nil, empty)
			p.woken = woken
			p.sweep(1)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the looks of three servers after five wakes paused for %v", took)
		}
	})
}

func TestWakesOfABusyServerDoNotPileUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newLooker(time.Hour, 1, nil, empty)
		for range 1000 { // nobody looks: all slots are taken
			p.woken.wake()
		}
		began := time.Now()
		p.sweep(1)
		if took := time.Since(began); took != 0 {
			t.Errorf("the first look after them paused for %v", took)
		}
		p.sweep(1)
		if took := time.Since(began); took < time.Hour/3-2*lookAgain {
			t.Errorf("the second look did so for %v: the wakes have piled up", took)
		}
	})
}

func TestAShutdownEndsThePauseAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { newLooker(time.Hour, 1, stopping, empty).sweep(1) })
		}
		time.Sleep(time.Second)
		close(stopping)
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the pauses took %v, want the second until the shutdown", took)
		}
	})
}

func TestAWorkerThatPausesShutsDownAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{TaskCheckInterval: time.Hour, DelayedTaskCheckInterval: time.Second, Fetchers: 3, Concurrency: 3})
		handle(t, w, "work", nothing)
		start(t, w)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the shutdown took %v while its fetchers paused", took)
		}
	})
}

// An error is the guard's to pace. The pacer neither counts it as an empty queue nor forgets the others for it.
func TestAnErrorIsNoEmptyQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failed bool
		p := newLooker(time.Hour, 1, nil, func() error {
			failed = true
			return errors.New("LOADING")
		})
		began := time.Now()
		p.sweep(1)
		if took := time.Since(began); took != 0 || !failed {
			t.Errorf("after an error the pacer paused for %v", took)
		}
		if got := p.empty.Load(); got != 0 {
			t.Errorf("an error counts as %d empty queues", got)
		}
	})
}

// What was found before an error belongs to a look that has ended: the next one is held after its last fetch, and not before.
func TestAnErrorEndsALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		p := newLooker(time.Hour, 3, nil, func() error {
			n++
			if n == 3 {
				return errors.New("LOADING")
			}
			return redis.Nil
		})
		began := time.Now()
		for _, i := range []int{0, 1, 2, 0, 1} {
			p.fetch(i)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a look after an error was held before its end, for %v", took)
		}
		p.fetch(2)
		if took := time.Since(began); took < time.Hour/3-2*lookAgain {
			t.Errorf("a look after an error was held for %v at its end", took)
		}
	})
}

func TestErrorsDoNotMakeAWorkerSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fetches atomic.Int64
		w, _ := virtual(t, Config{TaskCheckInterval: 50 * time.Millisecond}, hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if kindOf(cmd) != fetch {
				return next(ctx, cmd)
			}
			fetches.Add(1)
			return fail(cmd, errors.New("READONLY you may not write to a replica"))
		}))
		handle(t, w, "work", nothing)
		start(t, w)
		time.Sleep(20 * time.Second)
		if got := fetches.Load(); got > 60 {
			t.Errorf("%d fetches in 20s of errors", got)
		}
	})
}

func TestAFetchThatFindsATaskIsNotHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newLooker(time.Hour, 3, nil, nil)
		n := 0
		p.answer = func() error {
			n++
			if n%3 == 0 {
				return nil
			}
			return redis.Nil
		}
		began := time.Now()
		for range 100 {
			p.sweep(3)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a hundred looks that found a task took %v", took)
		}
	})
}

// Should a future asynq name its keys differently, nothing is held, and what is left of asynq's own pause sets the pace: a thousand looks a
// second. The tests on the interval and on errors fail then, and so does the one of the guard on what a command is.
func TestWithoutThePacerAsynqsOwnPauseIsTheFloor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c counted
		w, _ := virtual(t, Config{TaskCheckInterval: 50 * time.Millisecond}, c.hook())
		s := asynq.NewServerFromRedisClient(w.tasks, w.serverConfig(0))
		if err := s.Start(w); err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
		time.Sleep(5 * time.Second)
		looks := float64(c.fetches.Load()) / 5 / float64(len(w.queues()))
		t.Logf("%.0f looks a second", looks)
		if looks > 1500 || looks < 500 {
			t.Errorf("%.0f looks a second, want about 1000", looks)
		}
	})
}
