package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// looker fetches through a pacer as asynq's server does: from each queue, until one has a task.
type looker struct {
	*Conn
	answer func() error
	looks  int
}

func newLooker(interval time.Duration, queues int, stopping <-chan struct{}, answer func() error) *looker {
	return newLookerWith(interval, queues, stopping, NewWakes(1), answer)
}

func newLookerWith(interval time.Duration, queues int, stopping <-chan struct{}, woken Wakes,
	answer func() error,
) *looker {
	l := &looker{answer: answer}
	l.Conn = New(&answers{look: func() error {
		l.looks++
		return l.answer()
	}}, Options{Interval: interval, Queues: numbered(queues), Stopping: stopping, Wakes: woken})
	return l
}

// answers is a client that answers scripts as it is told.
type answers struct {
	redis.UniversalClient
	look func() error
}

func (a *answers) EvalSha(ctx context.Context, sum string, names []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha", sum, len(names))
	cmd.SetErr(a.look())
	return cmd
}

// fetch fetches from the i-th queue, and reports whether there was a task.
func (l *looker) fetch(i int) bool {
	name := func(part string) string { return fmt.Sprintf("asynq:{%d}:%s", i, part) }
	return l.EvalSha(context.Background(), dequeue, []string{
		name("pending"), name("paused"), name("active"),
		name("lease"),
	}).Err() == nil
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

func TestAPauseIsShorterThanTheIntervalAndRandom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 90 * time.Millisecond
		p := newLooker(interval, 3, nil, empty)
		least, most := time.Hour, time.Duration(0)
		for range 500 {
			began := time.Now()
			p.sweep(3)
			took := time.Since(began) + 2*CheckInterval
			least, most = min(least, took), max(most, took)
		}
		if least < interval*72/100 || most > interval*98/100 || most-least < interval/4 {
			t.Errorf("the pauses are from %v to %v, want from 0.72 to 0.98 of %v", least, most, interval)
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
			p.pacer.woken.Wake()
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
				p.pacer.woken.Wake() // into the first queue, which was just found empty
			}
			return redis.Nil
		}
		began := time.Now()
		p.sweep(2)
		if took := time.Since(began); took != 0 {
			t.Errorf("the pause took %v although a task was woken during the look", took)
		}
		p.sweep(2)
		if took := time.Since(began); took < time.Hour/3-2*CheckInterval {
			t.Errorf("one wake has ended two pauses, within %v", took)
		}
	})
}

// Two servers whose looks overlap: the one that has not finished its own must not be held, and not take the wake.
func TestAServerIsHeldBetweenItsLooksOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newLooker(time.Hour, 2, nil, empty), newLooker(time.Hour, 2, nil, empty)
		b.pacer.woken = a.pacer.woken
		began := time.Now()
		b.fetch(0)
		go func() {
			time.Sleep(time.Minute)
			b.pacer.woken.Wake()
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

// As many tasks as there are servers may be woken while none of them pauses; each server may have a slot for one of
// them only.
func TestEachServerHearsOfAWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := NewWakes(3)
		for range 5 {
			woken.Wake()
		}
		began := time.Now()
		for range 3 {
			p := newLookerWith(time.Hour, 1, nil, woken, nil)
			p.answer = func() error {
				if p.looks == 1 {
					return redis.Nil
				}
				return nil
			}
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
			p.pacer.woken.Wake()
		}
		began := time.Now()
		p.sweep(1)
		if took := time.Since(began); p.looks != 2 || took < time.Hour/3-2*CheckInterval {
			t.Errorf("%d looks within %v, want a second one after the first wake, and then a pause", p.looks, took)
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

func TestBetweenStopAndShutdownAServerLooksNoMoreOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		close(stopping)
		p := newLooker(90*time.Millisecond, 1, stopping, empty)
		began := time.Now()
		for range 101 {
			p.sweep(1)
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("101 looks took %v, want at least a third of the interval for each but the first", took)
		}
	})
}

// An error has a pause of its own. The pacer neither counts it as an empty queue nor forgets the others for it.
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
		if took := time.Since(began); took != pauseFirst || !failed {
			t.Errorf("after an error the next look came after %v, want %v", took, pauseFirst)
		}
		if got := p.pacer.empty.Load(); got != 0 {
			t.Errorf("an error counts as %d empty queues", got)
		}
	})
}

// What was found before an error belongs to a look that has ended: the next one is held after its last fetch, and not
// before.
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
		if took := time.Since(began); took != pauseFirst {
			t.Errorf("a look after an error was held before its end, for %v", took-pauseFirst)
		}
		p.fetch(2)
		if took := time.Since(began); took < time.Hour/3-2*CheckInterval {
			t.Errorf("a look after an error was held for %v at its end", took)
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

// A task in memory may come before asynq can have it: its locks are being taken. asynq sleeps after a fetch that has found
// nothing, so the pause goes on.
func TestAnEarlyArrivalDoesNotEndThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrived, looks := make(chan struct{}, 1), 0
		p := newLooker(90*time.Millisecond, 1, nil, func() error {
			looks++
			if looks < 4 {
				return redis.Nil
			}
			return nil
		})
		p.pacer.arrived = arrived
		go func() {
			for range 3 {
				time.Sleep(time.Millisecond)
				arrived <- struct{}{}
			}
		}()
		began := time.Now()
		if !p.fetch(0) || time.Since(began) != 3*time.Millisecond {
			t.Errorf("after %v and %d looks, the fetch has found a task: %v", time.Since(began), looks, looks == 4)
		}
	})
}

func TestEarlyArrivalsDoNotHoldUpAsynq(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 90 * time.Millisecond
		arrived := make(chan struct{}, 1)
		p := newLooker(interval, 1, nil, func() error {
			arrived <- struct{}{}
			time.Sleep(time.Millisecond)
			return redis.Nil
		})
		p.pacer.arrived = arrived
		began := time.Now()
		p.fetch(0)
		if took := time.Since(began); took > 2*interval {
			t.Errorf("the fetch took %v", took)
		}
	})
}

// The wake is for another server of the process, and tasks that are pending are no news.
func TestAServerWithoutASlotHearsOfNoTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 90 * time.Millisecond
		p := newLooker(interval, 1, nil, empty)
		p.pacer.starves = func() bool { return true }
		p.pacer.woken.Wake()
		began := time.Now()
		p.fetch(0)
		if took := time.Since(began); took < interval/2 {
			t.Errorf("the pause took %v", took)
		}
		if len(p.pacer.woken) != 1 {
			t.Error("it has taken the wake of another server")
		}
	})
}
