package delayqueue_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
)

func TestReachedNamesTheLimitThatWasExceeded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limits delayqueue.Limits
		met    delayqueue.Conflict
		want   delayqueue.Limit
	}{
		"conflicts":       {delayqueue.Limits{Conflicts: 3}, delayqueue.Conflict{Count: 4}, delayqueue.ConflictsLimit},
		"below conflicts": {delayqueue.Limits{Conflicts: 3}, delayqueue.Conflict{Count: 3}, delayqueue.NoLimit},
		"age":             {delayqueue.Limits{Age: time.Hour}, since(-61 * time.Minute), delayqueue.AgeLimit},
		"below age":       {delayqueue.Limits{Age: time.Hour}, since(-59 * time.Minute), delayqueue.NoLimit},
		"a first in the future": {
			delayqueue.Limits{Age: time.Minute}, since(time.Hour), delayqueue.NoLimit,
		},
		"the first conflict": {
			delayqueue.Limits{Conflicts: 1, Age: 1}, delayqueue.Conflict{Count: 1}, delayqueue.NoLimit,
		},
		"none that is far away": {
			delayqueue.Limits{Total: 1 << 40}, delayqueue.Conflict{
				Count: 10_000_000,
				First: time.Unix(1, 0),
			}, delayqueue.NoLimit,
		},
		"conflicts come before": {
			delayqueue.Limits{Conflicts: 1, Age: 1},
			delayqueue.Conflict{Count: 9, First: time.Unix(1, 0)},
			delayqueue.ConflictsLimit,
		},
	} {
		if limit := tt.limits.Reached(tt.met); limit != tt.want {
			t.Errorf("%s: limit %q, want %q", name, limit, tt.want)
		}
	}
}

// since is a conflict of a task that was refused first some time from now.
func since(d time.Duration) delayqueue.Conflict {
	return delayqueue.Conflict{Count: 3, First: time.Now().Add(d)}
}

func TestValidateReportsEveryFaultOfLimits(t *testing.T) {
	t.Parallel()
	err := delayqueue.Limits{Conflicts: -1, Age: -1, Waiters: -1, Total: -1}.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 4 {
		t.Errorf("%v, want four faults", err)
	}
}
