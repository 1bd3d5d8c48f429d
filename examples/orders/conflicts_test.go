package main

import (
	"context"
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// at is a moment, in milliseconds.
func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

func event(kind middleware.EventKind, ms int, id, key string) middleware.Event {
	return middleware.Event{Kind: kind, At: at(ms), Task: delayqueue.Task{Queue: "q", ID: id}, Type: auditType, Key: key}
}

func ended(ms int, id, key string, outcome middleware.Outcome, bound delayqueue.Limit) middleware.Event {
	e := event(middleware.Ended, ms, id, key)
	e.Err = &middleware.ConflictError{Outcome: outcome, Limit: bound}
	return e
}

// again is the end of another run of the same wait.
func again(ms int, id, key string) middleware.Event {
	e := event(middleware.Ended, ms, id, key)
	e.Err = &middleware.ConflictError{Outcome: middleware.Park, Conflicts: 2}
	return e
}

func observe(c *conflicts, events ...middleware.Event) {
	for _, e := range events {
		c.Observe(context.Background(), e)
	}
}

func TestConflictsMeasuresAWaitOverAllRuns(t *testing.T) {
	t.Parallel()
	c := newConflicts(func() { t.Error("nothing was archived") })
	observe(
		c,
		event(middleware.Refused, 10, "a", "order:1"), ended(10, "a", "order:1", middleware.Park, ""),
		again(40, "a", "seller:1"),
		event(middleware.Acquired, 90, "a", ""),
		event(middleware.Acquired, 95, "b", ""), // met no conflict
	)
	m := c.met(at(100))
	if len(m.Durations) != 1 || m.Durations[0] != 80*time.Millisecond {
		t.Errorf("waits %v, want 80ms", m.Durations)
	}
	if m.outcomes != (outcomes{Parked: 2}) || m.Refusals["order:1"] != 1 || m.Refusals["seller:1"] != 1 {
		t.Errorf("%+v, refusals %v", m.outcomes, m.Refusals)
	}
	want := wait{TaskID: "a", Type: auditType, Began: at(10), Ended: at(40), Refusals: 1, Ending: endedElsewhere}
	if got := m.Waits["order:1"]; len(got) != 1 || got[0] != want {
		t.Errorf("wait for the order: %+v", got)
	}
	want = wait{TaskID: "a", Type: auditType, Began: at(40), Ended: at(90), Refusals: 1, Ending: endedRunning}
	if got := m.Waits["seller:1"]; len(got) != 1 || got[0] != want {
		t.Errorf("wait for the seller: %+v", got)
	}
}

func TestConflictsTellsOutcomesApart(t *testing.T) {
	t.Parallel()
	archived := 0
	c := newConflicts(func() { archived++ })
	inSlot := event(middleware.Acquired, 20, "a", "")
	inSlot.Waited = 5 * time.Millisecond
	observe(
		c,
		event(middleware.Refused, 15, "a", "k"), inSlot,
		event(middleware.Refused, 30, "b", "k"), ended(30, "b", "k", middleware.Archive, delayqueue.NoLimit),
		event(middleware.Refused, 40, "c", "k"), ended(40, "c", "k", middleware.Archive, delayqueue.AgeLimit),
		event(middleware.Refused, 50, "d", "k"), ended(50, "d", "k", middleware.Park, ""),
	)
	m := c.met(at(60))
	if m.outcomes != (outcomes{InSlot: 1, FailFast: 1, Bound: 1, Parked: 1}) || m.total() != 4 || archived != 2 {
		t.Errorf("%+v, %d archived", m.outcomes, archived)
	}
	endings := map[string]ending{"a": endedRunning, "b": endedRefused, "c": endedRefused, "d": endedWaiting}
	for _, w := range m.Waits["k"] {
		if w.Ending != endings[w.TaskID] {
			t.Errorf("wait %+v, want the ending %q", w, endings[w.TaskID])
		}
	}
	if len(m.Waits["k"]) != 4 || len(m.Durations) != 1 {
		t.Errorf("%d waits, %d durations", len(m.Waits["k"]), len(m.Durations))
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	t.Parallel()
	var d durations
	if d.percentile(99) != 0 {
		t.Error("a percentile of nothing is not 0")
	}
	for i := 100; i >= 1; i-- {
		d = append(d, time.Duration(i))
	}
	for p, want := range map[int]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := d.percentile(p); got != want {
			t.Errorf("percentile %d is %d, want %d", p, got, want)
		}
	}
	if got := (durations{7}).percentile(99); got != 7 {
		t.Errorf("percentile of one value is %d", got)
	}
}
