package inspect_test

import (
	"os"
	"testing"
	"time"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

func TestHeldNamesTheTaskThatHoldsAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	began := time.Now()
	r.holding(attach.Options{}, "order:\xff{1}", "a", release)
	var held []inspect.Holding
	r.eventually("the task is reported", func() bool {
		var err error
		if held, err = r.inspect.Held(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		return len(held) > 0
	})
	h := held[0]
	if len(held) != 1 || h.Key != "order:\xff{1}" || h.Task != (delayqueue.Task{Queue: "default", ID: "a"}) ||
		h.Type != "order:audit" || h.Fence == 0 || h.Mode != inspect.ModeTask || h.PID != os.Getpid() ||
		h.Since.Before(began.Add(-time.Second)) || h.Since.After(time.Now()) {
		t.Errorf("held is %+v", held)
	}
	workers, err := r.inspect.Workers(t.Context())
	if err != nil || len(workers) != 1 {
		t.Fatalf("workers are %+v, %v", workers, err)
	}
	if w := workers[0]; w.Slots != 4 || w.Running != 1 || w.Keys != 1 || w.ID != h.Worker || len(w.Config) != 8 ||
		w.Queues["default"] != 1 {
		t.Errorf("the worker is %+v", w)
	}
}

func TestADeposedHolderIsNotHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	r.holding(attach.Options{}, "k", "a", release)
	r.eventually("the task is reported", func() bool {
		held, err := r.inspect.Held(t.Context(), 10)
		return err == nil && len(held) == 1
	})
	state, err := r.inspect.Look(t.Context(), "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.inspect.Depose(t.Context(), "k", inspect.Deposition{
		Expect: state.Holder.Owner, By: "ann", Why: "it hangs",
	}); err != nil {
		t.Fatal(err)
	}
	if held, err := r.inspect.Held(t.Context(), 10); err != nil || len(held) > 0 {
		t.Errorf("after the deposition, before the next report: held is %+v, error %v", held, err)
	}
}

func TestWorkerThatHasShutDownIsNotListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	stop := r.holding(attach.Options{}, "k", "a", release)
	r.eventually("the worker is listed", func() bool { return len(r.workers()) == 1 })
	close(release)
	stop()
	if left := r.workers(); len(left) > 0 {
		t.Errorf("it is still listed: %+v", left)
	}
	if names := r.client.Keys(t.Context(), "railtoken:worker*").Val(); len(names) > 0 {
		t.Errorf("it has left %q", names)
	}
}

func TestDisabledReportsWriteNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	stop := r.holding(attach.Options{DisableReports: true}, "k", "a", release)
	close(release)
	stop()
	if names := r.client.Keys(t.Context(), "railtoken:worker*").Val(); len(names) > 0 {
		t.Errorf("it has written %q", names)
	}
}

// workers returns the reports.
func (r *rig) workers() []inspect.Worker {
	r.Helper()
	workers, err := r.inspect.Workers(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return workers
}
