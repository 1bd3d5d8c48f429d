package leasing

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clocks are the two clocks of a machine, moved by hand.
type clocks struct{ mono, wall time.Time }

func newClocks() *clocks {
	now := time.Now()
	return &clocks{mono: now, wall: now.Round(0)}
}

func (c *clocks) stopwatch() Stopwatch {
	return StartStopwatch(func() (now, wall time.Time) { return c.mono, c.wall })
}

// run lets time pass on both clocks.
func (c *clocks) run(d time.Duration) { c.suspend(d); c.mono = c.mono.Add(d) }

// suspend lets time pass while the monotonic clock stands still; negative when the wall clock is set back.
func (c *clocks) suspend(d time.Duration) { c.wall = c.wall.Add(d) }

func TestElapsedFollowsTheClockThatMovedFurther(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tt := range map[string]struct {
		run  func(c *clocks, read func())
		want time.Duration
	}{
		"nothing happened": {func(*clocks, func()) {}, 0},
		"both run":         {func(c *clocks, _ func()) { c.run(3 * s) }, 3 * s},
		"the machine was suspended": {func(c *clocks, _ func()) {
			c.run(s)
			c.suspend(20 * s)
		}, 21 * s},
		"it was suspended twice": {func(c *clocks, read func()) {
			c.suspend(20 * s)
			read()
			c.run(s)
			read()
			c.suspend(10 * s)
		}, 31 * s},
		"the wall clock was set back": {func(c *clocks, read func()) {
			c.run(s)
			read()
			c.suspend(-time.Hour)
			read()
			c.run(2 * s)
		}, 3 * s},
		"it was set back without a reading in between": {func(c *clocks, _ func()) {
			c.run(s)
			c.suspend(-time.Hour)
			c.run(2 * s)
		}, 3 * s},
		"a suspension counts after the wall clock was set back": {func(c *clocks, read func()) {
			c.suspend(-time.Hour)
			read()
			c.suspend(20 * s)
		}, 20 * s},
		"set forth and back counts as forth": {func(c *clocks, read func()) {
			c.suspend(20 * s)
			read()
			c.suspend(-20 * s)
			read()
			c.run(s)
		}, 21 * s},
	} {
		c := newClocks()
		watch := c.stopwatch()
		tt.run(c, func() { watch.Elapsed() })
		if got := watch.Elapsed(); got != tt.want {
			t.Errorf("%s: elapsed %v, want %v", name, got, tt.want)
		}
	}
}

func TestElapsedIsNeverBelowTheMonotonicClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClocks()
		watch := c.stopwatch()
		start, last := c.mono, time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			c.run(duration(0, time.Minute).Draw(t, "run"))
			jump := rapid.OneOf(rapid.Just(time.Duration(0)), duration(-time.Hour, time.Hour)).Draw(t, "jump")
			c.suspend(jump)
			got := watch.Elapsed()
			if got < last {
				t.Fatalf("elapsed went back from %v to %v", last, got)
			}
			if mono := c.mono.Sub(start); got < mono {
				t.Fatalf("elapsed %v, by the monotonic clock %v", got, mono)
			}
			if got < last+jump {
				t.Fatalf("elapsed %v after %v: the wall clock went on by %v at least", got, last, jump)
			}
			last = got
		}
	})
}

func TestANewStopwatchReadsBothClocks(t *testing.T) {
	t.Parallel()
	watch := StartStopwatch(nil)
	// Two times that both have a monotonic reading are compared by that alone, and a suspension would not be seen.
	now, wall := watch.clocks()
	if strings.Contains(wall.String(), " m=") {
		t.Errorf("the wall clock %v has a monotonic reading", wall)
	}
	if !strings.Contains(now.String(), " m=") {
		t.Errorf("the monotonic clock %v has no monotonic reading", now)
	}
	<-time.After(time.Millisecond)
	if got := watch.Elapsed(); got < time.Millisecond {
		t.Errorf("elapsed %v after 1ms", got)
	}
}
