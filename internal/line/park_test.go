package line_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestFullWaitersTakeNoOtherTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		limits := line.ParkOptions{MaxWaiters: 2}
		for i, id := range []string{"a", "b", "c"} {
			place, err := r.Engine.Park(t.Context(), r.begun(id), r.key("k"), limits)
			if err != nil || r.hasPlace(r.task(id)) != (i < 2) {
				t.Errorf("%s: %+v, %v; has it a place: %v", id, place, err, i >= 2)
			}
		}
		// Who is in line stays in it.
		r.Begin(r.task("a"))
		if full, err := r.Engine.Full(t.Context(), r.task("a"), r.key("k"), 2, 0); err != nil || full != "" {
			t.Errorf("again: full %q, %v", full, err)
		}
		if place := r.parkWith(r.task("a"), "k", limits); !r.hasPlace(r.task("a")) || place.Count != 2 {
			t.Errorf("again: %+v", place)
		}
	})
}

func TestWaitersThatAreGoneLeaveRoom(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			r.Park(r.Delayed(id), "k")
			r.Remove(r.task(id))
		}
		place, err := r.Engine.Park(t.Context(), r.begun("c"), r.key("k"), line.ParkOptions{MaxWaiters: 1})
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
		if place := r.Park(r.Delayed("one more"), "k"); !r.hasPlace(r.task("one more")) || place.Waiters != waiting+1 {
			t.Errorf("%+v", place)
		}
	})
}

// A full registry once had each task that met it look at a thousand others.
func TestARefusedParkLooksAtFewWaiters(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]line.ParkOptions{"waiters": {MaxWaiters: 2000}, "total": {MaxTotal: 2000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, "standalone", redistest.Start(t).Client(t))
			r.crowd("k", 2000)
			task := r.begun("one more")
			before := r.commands()
			place, err := r.Engine.Park(t.Context(), task, r.key("k"), limits)
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
		task := r.Delayed("a")
		var first line.Parked
		for i := range 3 {
			place := r.Park(task, "k")
			if i == 0 {
				first = place
			}
			if place.Count != i+1 || !place.First.Equal(first.First) {
				t.Errorf("conflict %d: %+v after %+v", i+1, place, first)
			}
		}
		place := r.parkWith(task, "k", line.ParkOptions{Attempt: 1})
		if place.Count != 1 || !place.First.After(first.First) {
			t.Errorf("after a run that failed: %+v; want a first conflict", place)
		}
		// A run that was no failure moves no retry count. It ends with a wake.
		r.Begin(task)
		if _, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Leaver: task}); err != nil {
			t.Fatal(err)
		}
		if place = r.parkWith(task, "k", line.ParkOptions{Attempt: 1}); place.Count != 1 {
			t.Errorf("after a run that did not fail: %+v; want a first conflict", place)
		}
	})
}

func TestATaskWaitsForOneKeyAndPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.Delayed("a"), r.Delayed("b")
		r.Park(a, "one")
		r.Park(b, "one")
		r.Wake("one") // wakes a, which then finds another of its keys held
		r.Park(a, "two")
		if got := r.Waiting("two"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("for key two wait %v", got)
		}
		if got := r.Waiting("one"); len(got) != 0 {
			t.Errorf("for key one wait %v, though nobody is left to wake them", got)
		}
		if state := r.State(b).String(); state != "pending" {
			t.Errorf("b is %s: the wake was swallowed", state)
		}
		// A task that had not been woken leaves its old line without a wake.
		c, d := r.Delayed("c"), r.Delayed("d")
		r.Park(c, "three")
		r.Park(d, "three")
		r.Park(c, "four")
		if got := r.Waiting("three"); !slices.Equal(got, []string{"d"}) {
			t.Errorf("for key three wait %v", got)
		}
	})
}

func TestATaskThatWasDeletedDoesNotWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.Delayed("a")
		r.Remove(task)
		if _, err := r.Engine.Park(t.Context(), task, r.key("k"), line.ParkOptions{}); !errors.Is(err,
			line.ErrGone) {
			t.Errorf("%v, want ErrGone", err)
		}
		if got := r.Waiting("k"); len(got) != 0 {
			t.Errorf("%v wait", got)
		}
		if n := r.Client.Exists(t.Context(), hash(r.task("a"))).Val(); n != 0 {
			t.Error("parking has made a task of nothing")
		}
	})
}

func TestAPositionIsKeptForTheNextConflict(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ahead := time.Now().Add(time.Hour).UnixMicro() // as when another node's clock is ahead
		r.Park(r.Delayed("a"), "k")
		if err := r.Client.ZAdd(t.Context(), r.registry("k"),
			redis.Z{Score: float64(ahead), Member: entry(r.task("a"))}).Err(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"b", "c"} {
			r.Park(r.Delayed(id), "k")
		}
		if woken := r.wakeTask("k", r.task("b")); woken.First() != r.task("b") {
			t.Fatalf("woke %+v", woken)
		}
		r.Park(r.task("b"), "k")
		if got := r.Waiting("k"); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("in line are %v", got)
		}
	})
}
