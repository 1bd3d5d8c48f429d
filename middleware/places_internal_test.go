package middleware

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
)

func TestThoseFarBackInLineLookForThemselvesLater(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		delay time.Duration
		ahead int
		want  time.Duration
	}{
		{31 * time.Second, 0, 31 * time.Second},
		{31 * time.Second, -1, 31 * time.Second},
		{32 * time.Second, 8, 64 * time.Second},
		{32 * time.Second, 16, 96 * time.Second},
		{32 * time.Second, 10_000, 10 * time.Minute},
		{32 * time.Second, 30_000, 10 * time.Minute},
		{32 * time.Second, 90_000, 30 * time.Minute},
		{time.Hour, 10_000, time.Hour},
		{10 * time.Minute, 3, 10 * time.Minute},
		{9 * time.Minute, 8, 10 * time.Minute},
		{time.Second, 1 << 62, 10 * time.Minute},
	} {
		if got := fallback(tt.delay, tt.ahead); got != tt.want {
			t.Errorf("a delay of %v with %d tasks before it becomes %v, want %v", tt.delay, tt.ahead, got, tt.want)
		}
	}
}

func TestThoseWithoutAPlaceLookLaterEachTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		waiters, count int
		want           time.Duration
	}{
		{8, 1, time.Minute},
		{8, 2, 2 * time.Minute},
		{8, 4, 8 * time.Minute},
		{8, 1 << 60, 10 * time.Minute},
		{90_000, 9, 30 * time.Minute},
	} {
		place := delayqueue.Place{Conflict: delayqueue.Conflict{Count: tt.count}, Waiters: tt.waiters}
		if got := unplaced(30*time.Second, place); got != tt.want {
			t.Errorf("with %d waiters and %d conflicts it looks in %v, want %v", tt.waiters, tt.count, got, tt.want)
		}
	}
}

func TestConflictsBeforeAMoveCountUntilTheHandlerHasRun(t *testing.T) {
	t.Parallel()
	moved := &delayqueue.Moved{Before: delayqueue.Conflict{Count: 3}}
	for attempt, want := range []int{3, 0, 0} {
		if got := (&run{moved: moved, attempt: attempt}).before().Count; got != want {
			t.Errorf("at attempt %d %d conflicts from before the move count, want %d", attempt, got, want)
		}
	}
}
