package attach_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// byText finds the key of a task in its payload, also before its run.
var byText = middleware.PayloadKey(func(key string) string { return key })

// text returns a payload for byText.
func text(key string) string { return fmt.Sprintf("%q", key) }

// Where the locks are elsewhere, too, tasks of a held key are parked before they have a slot.
func TestTasksOfAHeldKeyElsewhereOccupyNoSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	single := elsewhere(t)
	const waiting = 20
	done, parked := make(chan string, waiting+2), make(chan middleware.Event, waiting+2)
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{Locker: single, Observer: func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.Parked {
			parked <- e
		}
	}})
	r.serve(a.Client(), a.Config(), a.Lock(byText)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		done <- id
		return nil
	})))
	r.enqueue(text("first"), asynq.TaskID("first")) // its run shows its keys
	receive(t, done)
	lease, err := a.Locker().Acquire(t.Context(), []string{"hot"}, locking.Options{})
	ok(t, err)
	for range waiting {
		r.enqueue(text("hot"))
	}
	r.enqueue(text("other"), asynq.TaskID("other"))
	for range waiting {
		if e := receive(t, parked); !e.Fetched {
			t.Errorf("%s has had a slot", e.Task)
		}
	}
	if id := receive(t, done); id != "other" {
		t.Errorf("%s has run, want the other one", id)
	}
	ok(t, lease.Release(t.Context()))
	for range waiting {
		receive(t, done)
	}
}

// brittle is a Locker of users that panics, or ends the goroutine, at its second attempt.
type brittle struct {
	locking.Locker

	n   atomic.Int32
	end func()
}

func (b *brittle) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	if b.n.Add(1) == 2 {
		b.end()
	}
	return b.Locker.Acquire(ctx, keys, opts)
}

// The server's own goroutines survive it, and the task's run tries again.
func TestALockerThatBreaksBeforeARunIsTriedInIt(t *testing.T) {
	t.Parallel()
	for name, end := range brokenOff {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, locker, done := newRig(t), &brittle{Locker: elsewhere(t), end: end}, make(chan struct{}, 2)
			a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{Locker: locker})
			r.serve(a.Client(), a.Config(), a.Lock(byText)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				done <- struct{}{}
				return nil
			})))
			for i := range 2 {
				r.enqueue(text(fmt.Sprint(i)), asynq.MaxRetry(0))
				receive(t, done)
			}
			if n := locker.n.Load(); n != 3 {
				t.Errorf("%d attempts, want 3", n)
			}
		})
	}
}

// brokenOff are ways in which a user's code does not return.
var brokenOff = map[string]func(){"panics": func() { panic("it is broken") }, "ends its goroutine": runtime.Goexit}

// long are options with a TTL that no test waits for: it is longer than limit.
func long(locker locking.Locker) attach.Options {
	return attach.Options{Locker: locker, TTL: 50 * time.Second}
}

// heldBack is a Locker that lets an attempt for the key "late" pass only once it is told to.
type heldBack struct {
	locking.Locker

	asked, pass chan struct{}
}

func (h *heldBack) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	if keys[0] == "late" {
		close(h.asked)
		<-h.pass
	}
	return h.Locker.Acquire(ctx, keys, opts)
}

// wantFree waits until a key is free.
func (r *rig) wantFree(l locking.Locker, key string) {
	r.Helper()
	r.until(key+" is free", func() bool {
		lease, err := l.Acquire(r.Context(), []string{key}, locking.Options{})
		return err == nil && lease.Release(r.Context()) == nil
	})
}

// The server stops while the key of a task is locked before its run. The task goes back, and its lease ends.
func TestALeaseElsewhereEndsWhenItsTaskGoesBack(t *testing.T) {
	t.Parallel()
	r, single, stopped := newRig(t), elsewhere(t), make(chan struct{})
	locker := &heldBack{single, make(chan struct{}), make(chan struct{})}
	a := r.attach(asynq.Config{Concurrency: 1, LogLevel: asynq.DebugLevel, Logger: stopLog{stopped}}, long(locker))
	done := make(chan struct{}, 1)
	server := r.serve(a.Client(), a.Config(), a.Lock(byText)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done <- struct{}{}
		return nil
	})))
	r.enqueue(text("first")) // its run shows its keys
	receive(t, done)
	late := r.enqueue(text("late"))
	receive(t, locker.asked)
	server.Stop()
	receive(t, stopped)
	close(locker.pass)
	r.settled(late, asynq.TaskStatePending)
	r.wantFree(single, "late")
}

// stopLog tells when asynq's processor has stopped.
type stopLog struct{ stopped chan struct{} }

func (l stopLog) Debug(args ...any) {
	if fmt.Sprint(args...) == "Processor done" {
		close(l.stopped)
	}
}

func (stopLog) Info(...any)  {}
func (stopLog) Warn(...any)  {}
func (stopLog) Error(...any) {}
func (stopLog) Fatal(...any) {}

// A middleware in front of the lock ends the run of a task that has come with its lease.
func TestALeaseElsewhereEndsWithARunThatDoesNotTakeIt(t *testing.T) {
	t.Parallel()
	r, single, done := newRig(t), elsewhere(t), make(chan struct{}, 2)
	a := r.attach(asynq.Config{Concurrency: 1}, long(single))
	locked := a.Lock(byText)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done <- struct{}{}
		return nil
	}))
	r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if string(task.Payload()) == text("skipped") {
			return nil
		}
		return locked.ProcessTask(ctx, task)
	}))
	r.enqueue(text("first"))
	receive(t, done)
	r.settled(r.enqueue(text("skipped"), asynq.Retention(time.Hour)), asynq.TaskStateCompleted)
	r.wantFree(single, "skipped")
}
