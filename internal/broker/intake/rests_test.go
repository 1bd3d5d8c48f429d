package intake

import (
	"testing"
	"time"
)

func TestATaskRestsUntilAsynqKnowsOfItsEnd(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms float64) time.Time { return began.Add(time.Duration(ms * float64(time.Millisecond))) }
	const n = "1"
	for what, test := range map[string]struct {
		before func(r *rests)
		now    float64 // ms
		rests  bool
	}{
		"another task":                  {func(r *rests) { r.acknowledging("2") }, 0, false},
		"while it is acknowledged":      {func(r *rests) { r.acknowledging(n) }, 500, true},
		"just after":                    {func(r *rests) { r.acknowledging(n); r.acknowledged(n, at(0)) }, 1, true},
		"later":                         {func(r *rests) { r.acknowledging(n); r.acknowledged(n, at(0)) }, 2, false},
		"in a heartbeat":                {func(r *rests) { r.beat(at(-1)); r.acknowledged(n, at(0)) }, 900, true},
		"in one that began after":       {func(r *rests) { r.acknowledged(n, at(0)); r.beat(at(1)) }, 900, true},
		"in a later one":                {func(r *rests) { r.acknowledged(n, at(0)); r.beat(at(3)) }, 900, false},
		"just after a heartbeat":        {func(r *rests) { end := r.beat(at(-1)); r.acknowledged(n, at(0)); end(at(9)) }, 10, true},
		"later after a heartbeat":       {func(r *rests) { end := r.beat(at(-1)); r.acknowledged(n, at(0)); end(at(9)) }, 11, false},
		"after one that ended before":   {func(r *rests) { r.beat(at(-9))(at(-1)); r.acknowledged(n, at(0)) }, 2, false},
		"between calls of a heartbeat":  {func(r *rests) { r.beat(at(-9))(at(1)); r.acknowledged(n, at(0)) }, 2, true},
		"in the heartbeat's next call":  {func(r *rests) { r.beat(at(-9))(at(4)); r.acknowledged(n, at(0)); r.beat(at(5)) }, 99, true},
		"in its second acknowledgement": {func(r *rests) { r.acknowledged(n, at(-9)); r.acknowledging(n) }, 99, true},
	} {
		r := newRests()
		test.before(r)
		if left := r.of(n, at(test.now), false); (left > 0) != test.rests {
			t.Errorf("%s: it rests for %v", what, left)
		}
	}
}

func TestARestThatIsOverIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRests()
	now := time.Now()
	for i := range 1000 {
		n := numbered(1000)[i].ID
		r.acknowledging(n)
		r.acknowledged(n, now)
		now = now.Add(time.Millisecond)
	}
	if len(r.tasks) > 3 || len(r.over) > 3 {
		t.Errorf("%d tasks are remembered, in a list of %d", len(r.tasks), len(r.over))
	}
}

func TestATaskThatRestsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s, r := newSlots(4), newRests()
	s.answered(0, numbered(2), time.Now())
	r.acknowledging("0")
	if task, ok, _ := s.take(r.of); !ok || task.ID != "1" {
		t.Errorf("asynq gets %+v, %v, while the other rests", task, ok)
	}
	if task, ok, wait := s.take(r.of); ok || wait <= 0 {
		t.Errorf("asynq gets %+v, or waits for %v", task, wait)
	}
	r.acknowledged("0", time.Now().Add(-time.Second))
	if task, ok, _ := s.take(r.of); !ok || task.ID != "0" {
		t.Errorf("asynq gets %+v, %v, after the rest", task, ok)
	}
}

// asynq frees the slot of a run after its heartbeater has learned of the end.
func TestNoAcknowledgedTaskRestsWhenAsynqAsksForItsLastSlot(t *testing.T) {
	t.Parallel()
	s, r := newSlots(3), newRests()
	s.answered(0, numbered(2), time.Now())
	for range 2 {
		_, _, _ = s.take(r.of)
	}
	s.answered(0, []Task{{Queue: "another", ID: "1"}}, time.Now())
	r.acknowledging("1")
	if task, ok, wait := s.take(r.of); ok || wait != rest {
		t.Errorf("asynq gets %+v, or waits for %v, while the run before is acknowledged", task, wait)
	}
	s.end(name{"q", "1"})
	r.acknowledged("1", time.Now())
	if task, ok, wait := s.take(r.of); ok || wait <= 0 {
		t.Errorf("asynq gets %+v, or waits for %v, when the run before may hold another slot still", task, wait)
	}
	s.answered(0, numbered(3)[2:], time.Now())
	if task, ok, _ := s.take(r.of); !ok || task.ID != "2" {
		t.Errorf("asynq gets %+v, %v, want the one that has had no run", task, ok)
	}
	if task, ok, _ := s.take(r.of); !ok || task.ID != "1" {
		t.Errorf("asynq gets %+v, %v, when it has a task for each of the other slots", task, ok)
	}
}
