package delayqueue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
)

func TestAFullLineTakesNobodyElse(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		bounds := delayqueue.Limits{Waiters: 2}
		for i, id := range []string{"a", "b", "c"} {
			place, err := r.queue.Park(t.Context(), r.begun(id), r.key("k"), delayqueue.ParkOptions{Limits: bounds})
			if err != nil || r.hasPlace(r.task(id)) != (i < 2) {
				t.Errorf("%s: %+v, %v; has it a place: %v", id, place, err, i >= 2)
			}
		}
		// Who is in line stays in it.
		r.begin(r.task("a"))
		if bound, err := r.queue.Full(t.Context(), r.task("a"), r.key("k"), bounds); err != nil || bound != delayqueue.NoLimit {
			t.Errorf("again: bound %q, %v", bound, err)
		}
		if place := r.parkWith(r.task("a"), "k", delayqueue.ParkOptions{Limits: bounds}); !r.hasPlace(r.task("a")) || place.Count != 2 {
			t.Errorf("again: %+v", place)
		}
	})
}

func TestWaitersThatAreGoneDoNotFillALine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			r.park(r.delayed(id), "k")
			r.remove(r.task(id))
		}
		place, err := r.queue.Park(t.Context(), r.begun("c"), r.key("k"), delayqueue.ParkOptions{Limits: delayqueue.Limits{Waiters: 1}})
		if err != nil || !r.hasPlace(r.task("c")) || place.Waiters != 1 {
			t.Errorf("%+v, %v", place, err)
		}
	})
}

func TestAnyNumberOfTasksWaitsByDefault(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const waiting = 10_100
		r.crowd("k", waiting)
		if place := r.park(r.delayed("one more"), "k"); !r.hasPlace(r.task("one more")) || place.Waiters != waiting+1 {
			t.Errorf("%+v", place)
		}
	})
}

// A full registry once had each task that met it look at a thousand others.
func TestARefusedParkLooksAtFewWaiters(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]delayqueue.Limits{"waiters": {Waiters: 2000}, "total": {Total: 2000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, "standalone", redistest.Start(t).Client(t))
			r.crowd("k", 2000)
			task := r.begun("one more")
			before := r.commands()
			place, err := r.queue.Park(t.Context(), task, r.key("k"), delayqueue.ParkOptions{Limits: bounds})
			if err != nil || r.hasPlace(task) {
				t.Fatalf("%+v, %v", place, err)
			}
			if n := r.commands() - before; n > 31 {
				t.Errorf("a refused park made %d commands on the server, want 31 at most", n)
			}
		})
	}
}

func TestConflictsAreCountedAnewAfterARun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a")
		var first delayqueue.Parked
		for i := range 3 {
			place := r.park(task, "k")
			if i == 0 {
				first = place
			}
			if place.Count != i+1 || !place.First.Equal(first.First) {
				t.Errorf("conflict %d: %+v after %+v", i+1, place, first)
			}
		}
		place := r.parkWith(task, "k", delayqueue.ParkOptions{Attempt: 1})
		if place.Count != 1 || !place.First.After(first.First) {
			t.Errorf("after a run that failed: %+v; want a first conflict", place)
		}
		// A run that was no failure moves no retry count. It ends with a wake.
		r.begin(task)
		if _, err := r.queue.Wake(t.Context(), r.key("k"), delayqueue.WakeOptions{Leaver: task}); err != nil {
			t.Fatal(err)
		}
		if place = r.parkWith(task, "k", delayqueue.ParkOptions{Attempt: 1}); place.Count != 1 {
			t.Errorf("after a run that did not fail: %+v; want a first conflict", place)
		}
	})
}

func TestATaskWaitsForOneKeyAndPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.delayed("a"), r.delayed("b")
		r.park(a, "one")
		r.park(b, "one")
		r.wake("one") // wakes a, which then finds another of its keys held
		r.park(a, "two")
		if got := r.waiting("two"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("for key two wait %v", got)
		}
		if got := r.waiting("one"); len(got) != 0 {
			t.Errorf("for key one wait %v, though nobody is left to wake them", got)
		}
		if state := r.state(b).String(); state != "pending" {
			t.Errorf("b is %s: the wake was swallowed", state)
		}
		// A task that had not been woken leaves its old line without a wake.
		c, d := r.delayed("c"), r.delayed("d")
		r.park(c, "three")
		r.park(d, "three")
		r.park(c, "four")
		if got := r.waiting("three"); !slices.Equal(got, []string{"d"}) {
			t.Errorf("for key three wait %v", got)
		}
	})
}

func TestATaskThatWasDeletedDoesNotWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a")
		r.remove(task)
		if _, err := r.queue.Park(t.Context(), task, r.key("k"), delayqueue.ParkOptions{}); !errors.Is(err, delayqueue.ErrGone) {
			t.Errorf("%v, want ErrGone", err)
		}
		if got := r.waiting("k"); len(got) != 0 {
			t.Errorf("%v wait", got)
		}
		if n := r.client.Exists(t.Context(), hash(r.task("a"))).Val(); n != 0 {
			t.Error("parking has made a task of nothing")
		}
	})
}

func TestBoundsReportEveryFault(t *testing.T) {
	t.Parallel()
	err := delayqueue.Limits{Conflicts: -1, Age: -1, Waiters: -1, Total: -1}.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 4 {
		t.Errorf("%v, want four faults", err)
	}
}

func TestAPlaceBehindAnotherIsKeptForTheNextConflict(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ahead := time.Now().Add(time.Hour).UnixMicro() // as when another node's clock is ahead
		r.park(r.delayed("a"), "k")
		if err := r.client.ZAdd(t.Context(), r.registry("k"), redis.Z{Score: float64(ahead), Member: entry(r.task("a"))}).Err(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"b", "c"} {
			r.park(r.delayed(id), "k")
		}
		if woken := r.wakeTask("k", r.task("b")); woken.First() != r.task("b") {
			t.Fatalf("woke %+v", woken)
		}
		r.park(r.task("b"), "k")
		if got := r.waiting("k"); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("in line are %v", got)
		}
	})
}
