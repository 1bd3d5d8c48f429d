package intake_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// lockingTasks locks the keys of tasks apart, when the test says so.
type lockingTasks struct {
	noTasks

	began    chan func(held colocated.Held) // one for each task
	released chan string                    // the IDs of tasks whose leases were released
	refuses  bool                           // their keys are held
}

// newLocking returns an Intake whose tasks are locked so, and a client of its Redis, which has so many of them.
func newLocking(t *testing.T, slots, pending int) (*redis.Client, *intake.Intake, *lockingTasks) {
	t.Helper()
	admin := redistest.Start(t).Client(t)
	enqueue(t, admin, "default", pending)
	tasks := &lockingTasks{began: make(chan func(colocated.Held), 16), released: make(chan string, 16)}
	return admin, intake.New(admin, intake.Options{Slots: slots, Tasks: tasks}), tasks
}

func (l *lockingTasks) Lock(all []intake.Task, locked func(intake.Task)) []intake.Task {
	for _, t := range all {
		l.began <- func(held colocated.Held) {
			if t.Held = held; l.refuses {
				t.Refused = &colocated.Refused{}
			}
			locked(t)
		}
	}
	return nil
}

// Left returns a release that no script can carry out.
func (l *lockingTasks) Left(t intake.Task) *colocated.Release {
	return colocated.NewRelease(nil, "", nil, func(context.Context, bool) (o colocated.Outcome, err error) {
		l.released <- t.ID
		return o, nil
	})
}

// lease stands for a lease.
type lease struct{}

func (lease) Release(func([]string)) *colocated.Release { return nil }

func TestATaskKeepsItsSlotWhileItsKeysAreLocked(t *testing.T) {
	t.Parallel()
	_, in, tasks := newLocking(t, 2, 3)
	if more, err := in.Fetch(t.Context(), "default"); !more || err != nil {
		t.Fatalf("%t, %v", more, err)
	}
	first, second := redistest.Receive(t, tasks.began, patience), redistest.Receive(t, tasks.began, patience)
	if got, ok := in.Take(); ok {
		t.Fatalf("asynq gets %+v before its keys are locked", got)
	}
	if _, err := in.Fetch(t.Context(), "default"); !errors.Is(err, redis.Nil) || len(tasks.began) > 0 {
		t.Fatalf("more tasks than slots are fetched: %v", err)
	}
	first(lease{})
	redistest.Receive(t, in.Arrived(), patience)
	if got, ok := in.Take(); !ok || got.Held == nil {
		t.Errorf("asynq gets %+v, %t; want a task with its lease", got, ok)
	}
	second(nil)
	redistest.Receive(t, in.Arrived(), patience)
	if got, ok := in.Take(); !ok || got.Held != nil {
		t.Errorf("asynq gets %+v, %t; want a task whose run locks its keys", got, ok)
	}
}

// parkingTasks parks each task that was refused. The test says when it needs no slot any more, unless that is so at once.
type parkingTasks struct {
	*lockingTasks

	atOnce bool
	parked chan func()
}

func (p *parkingTasks) Park(_ intake.Task, parked func(), _ func() bool) bool {
	if p.atOnce {
		parked()
	}
	p.parked <- parked
	return true
}

// A task whose key is held is parked in the background, without a run. Another one comes in its place, and no more.
func TestATaskThatWasParkedLeavesItsSlotOnce(t *testing.T) {
	t.Parallel()
	for name, atOnce := range map[string]bool{"at once": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := redistest.Start(t).Client(t)
			enqueue(t, admin, "default", 3)
			tasks := &parkingTasks{
				lockingTasks: &lockingTasks{began: make(chan func(colocated.Held), 16)}, atOnce: atOnce, parked: make(chan func(), 1),
			}
			tasks.refuses = true
			in := intake.New(admin, intake.Options{Slots: 1, Tasks: tasks})
			if _, err := in.Fetch(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			redistest.Receive(t, tasks.began, patience)(nil)
			parked := redistest.Receive(t, tasks.parked, patience)
			redistest.Receive(t, in.Arrived(), patience) // asynq asks for another one
			if got, ok := in.Take(); ok {
				t.Fatalf("asynq gets %+v, which is parked", got)
			}
			if !atOnce {
				parked()
			}
			if _, err := in.Fetch(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			redistest.Receive(t, tasks.began, patience)
			if n := admin.LLen(t.Context(), "asynq:{default}:active").Val(); n != 2 {
				t.Errorf("%d tasks were fetched, want the one that is parked and the next", n)
			}
		})
	}
}

// The server ends while keys are being locked: their lease ends, and the task goes back.
func TestATaskWhoseKeysAreLockedGoesBackAtTheEnd(t *testing.T) {
	t.Parallel()
	admin, in, tasks := newLocking(t, 1, 1)
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	locked, drained := redistest.Receive(t, tasks.began, patience), make(chan struct{})
	go func() {
		defer close(drained)
		in.Drain(t.Context())
	}()
	locked(lease{})
	<-drained
	if id := redistest.Receive(t, tasks.released, patience); id != "default0" {
		t.Errorf("the lease of %s is released", id)
	}
	eventually(t, "the task is pending", func() bool { return admin.LLen(t.Context(), "asynq:{default}:pending").Val() == 1 })
}
