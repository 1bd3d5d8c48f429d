package intake

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// asynq has a task until its handler has returned, or until it has learned that its lease has ended.
func TestATaskIsAsynqsUntilItsHandlerReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3)
		s.answered(0, numbered(2), time.Now())
		for range 2 {
			_, _, _ = s.take(restless)
		}
		first, second := name{"q", "0"}, name{"q", "1"}
		s.ending(first)
		s.ending(name{"q", "unknown"})
		if s.works(first) || !s.works(second) || len(s.running) != 2 {
			t.Error("of two tasks the one whose handler has returned is not known")
		}
		time.Sleep(lease + learned)
		for _, forgotten := range []bool{false, true} {
			if !s.works(second) {
				t.Errorf("asynq has learned too early of the end of a lease, which is forgotten: %v", forgotten)
			}
			s.full() // which forgets it
		}
		time.Sleep(time.Nanosecond)
		if s.works(second) {
			t.Error("asynq does not learn of the end of a lease")
		}
	})
}

// While runs are brief, and keys are found in tasks, three times as many are asked for as slots are free.
func TestThreeTimesAsManyTasksAreAskedForAhead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		free, acks   int
		finds, brief bool
		want         int
	}{
		{2, 1, true, true, 6}, {2, 0, true, true, 2}, {2, 1, false, true, 2}, {2, 1, true, false, 2}, {15, 1, true, true, 35},
	} {
		s := newSlots(20)
		s.finds, s.brief = tc.finds, tc.brief
		s.asked = 0
		for i := range 20 - tc.free {
			s.running[name{"q", fmt.Sprint(i)}] = running{until: time.Now().Add(time.Hour)}
		}
		if _, n := s.ask(nil, 0, tc.acks, -1); n != tc.want {
			t.Errorf("%+v: %d are asked for", tc, n)
		}
	}
}

// Of the free slots a call gets as many as it may have, and places that have the slots together get equal shares.
func TestACallGetsItsShareOfTheFreeSlots(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{-1: 4, 2: 2, 4: 4, 9: 4} {
		if _, n := newSlots(4).ask(nil, 1, 0, most); n != want {
			t.Errorf("of 4 slots %d at most: it asks for %d, want %d", most, n, want)
		}
	}
	w := newTurns(10, 9, false)
	for _, want := range []int{5, 3, 2, 1} { // a fetch asks two places, then four, eight and all
		for i := range w.all {
			w.hear(i, 1)
		}
		for _, p := range w.picks(time.Unix(1e9, 0), 9) {
			if p.most != want {
				t.Errorf("of 9 slots each place has %d, want %d", p.most, want)
			}
			w.leave(p.place)
		}
	}
}

// A task in memory is given to asynq as long as half of its lease is left.
func TestATaskIsGivenToAsynqWithHalfOfItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		s.answered(0, numbered(1), time.Now().Add(-lease/2))
		if _, ok, _ := s.take(restless); !ok {
			t.Error("it is left in memory")
		}
	})
}

// What asynq has learned of a lease is forgotten, however many end.
func TestLeasesThatHaveEndedAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		for i := range 10 {
			s.running[name{"q", fmt.Sprint(i)}] = running{until: time.Now()}
			time.Sleep(lease + learned)
			s.full()
		}
		if len(s.running) != 0 || len(s.leaseless) > 2 {
			t.Errorf("%d runs and %d leases are remembered", len(s.running), len(s.leaseless))
		}
	})
}

// A set has 64 queues. Those behind count as one.
func TestTheQueuesOfASetAreTold(t *testing.T) {
	t.Parallel()
	if setOf(0) != 1 || setOf(5) != 1<<5 || setOf(63) != 1<<63 || setOf(64) != setOf(63) || setOf(300) != setOf(63) {
		t.Errorf("the sets are %b, %b, %b", setOf(0), setOf(63), setOf(64))
	}
	w := newTurns(2, 4, false)
	w.all[1].may = 0
	for _, heard := range []struct {
		queues queueSet
		fresh  bool
	}{{setOf(1), true}, {setOf(1), false}, {setOf(1) | setOf(2), true}, {setOf(2), false}} {
		if fresh := w.hear(1, heard.queues); fresh != heard.fresh {
			t.Errorf("what is heard of %b is new: %v", heard.queues, fresh)
		}
	}
}

// Of a queue that is not the server's, and without turns, there is nothing to note.
func TestNothingIsHeardOfOtherQueues(t *testing.T) {
	t.Parallel()
	in, _ := onVirtual(t)
	in.Hear("another")
	in.Hear("default")
}

// On one Redis all queues are in one place, up to 255, which have a byte each; on a Cluster each has its own.
func TestTheQueuesOfOneRedisAreInOnePlace(t *testing.T) {
	t.Parallel()
	m, client := redistest.Virtual(t)
	for n, want := range map[int]bool{2: true, 255: true, 256: false} {
		queues := map[string]int{}
		for i := range n {
			queues[fmt.Sprint(i)] = 1
		}
		in := New(client, Options{Queues: queues, Slots: 1})
		if in.AllAtOnce() != want || (in.place("0") == in.place("1")) != want {
			t.Errorf("%d queues are in one place: %v", n, !want)
		}
	}
	for name, other := range map[string]redis.UniversalClient{"a Cluster": redistest.VirtualCluster(t, m), "a client of a user": wrapped{client}} {
		in := New(other, Options{Queues: map[string]int{"a": 1, "b": 1}, Slots: 1})
		if in.AllAtOnce() || in.place("a") == in.place("b") {
			t.Errorf("on %s all queues are in one place", name)
		}
		once := in.place("another")
		if again := in.place("another"); again != once || again == in.place("a") || len(in.others) != 1 {
			t.Errorf("on %s the place of a queue that is not the server's is not kept", name)
		}
	}
}

type wrapped struct{ redis.UniversalClient }

// asynq fetches again: what it has left in memory before has no meaning any more.
func TestAFetchEndsTheQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _ := onVirtual(t)
		in.look()
		if in.quiet.Load() {
			t.Error("asynq does not fetch, although nothing lay in memory for too long")
		}
		in.quiet.Store(true)
		_, _ = in.Fetch(t.Context(), "default")
		if in.quiet.Load() {
			t.Error("asynq fetches, and nobody knows")
		}
	})
}

// onVirtual returns an Intake with two slots on a fake Redis.
func onVirtual(t *testing.T) (*Intake, *miniredis.Miniredis) {
	t.Helper()
	m, _ := redistest.Virtual(t)
	return New(redistest.Patient(t, m), Options{Slots: 2}), m
}
