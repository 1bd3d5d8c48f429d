package main

import (
	"slices"
	"testing"
	"time"
)

func TestALateWriterOvertakesTheNextReader(t *testing.T) {
	t.Parallel()
	start := time.Now()
	d := newDirector(time.Second, 4, 4, 0, 4)
	d.killEach = 1000
	expect := func(got []action, want ...action) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	a, b, other := transfer{From: 1, To: 2}, transfer{From: 2, To: 3}, transfer{From: 8, To: 9}
	expect(d.read(start, 1, a), action{pause, 1})
	expect(d.read(start.Add(time.Second), 2, other), action{pause, 2})
	later := start.Add(2 * time.Second)
	expect(d.read(later, 3, b), action{wake, 1}) // 3 has read, and waits until 1 has written
	expect(d.tick(later))
	expect(d.ended(later, 1, true), action{answer, 3}, action{answer, 1})
	later = later.Add(time.Second)
	expect(d.read(later, 4, other), action{answer, 4}) // the next time, the late writer is the last
	expect(d.ended(later, 4, true), action{wake, 2}, action{answer, 4})
	expect(d.ended(later, 2, true), action{answer, 2})
	expect(d.ended(later, 3, true), action{answer, 3})
	if len(d.stopped) != 0 {
		t.Errorf("%d workers are left", len(d.stopped))
	}
}

func TestAStallEndsWithoutAnotherReader(t *testing.T) {
	t.Parallel()
	start := time.Now()
	d := newDirector(time.Second, 2, 2, 0, 4)
	d.stopEach, d.killEach = 1, 1000
	d.read(start, 1, transfer{From: 1, To: 2})
	if got := d.tick(start.Add(3 * time.Second)); len(got) != 0 {
		t.Errorf("within three TTLs: %v", got)
	}
	if got := d.tick(start.Add(4 * time.Second)); !slices.Equal(got, []action{{wake, 1}}) {
		t.Errorf("after three TTLs: %v", got)
	}
}

func TestAKillIsAfterTheCommitOrBeforeTheWrite(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := newDirector(time.Second, 2, 0, 2, 4)
	d.stopEach = 1000
	for _, step := range []struct {
		got  []action
		want action
	}{
		{d.read(now, 1, transfer{}), action{answer, 1}},
		{d.ended(now, 1, false), action{answer, 1}},
		{d.ended(now, 1, true), action{kill, 1}},
		{d.read(now, 2, transfer{}), action{kill, 2}},
	} {
		if !slices.Equal(step.got, []action{step.want}) {
			t.Errorf("got %v, want %v", step.got, step.want)
		}
	}
}
