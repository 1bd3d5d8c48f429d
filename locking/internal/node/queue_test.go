package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Scripts of each class.
var (
	releaseOf = NewScript("a release")
	renewOf   = NewScript("a renewal").ForRenewals()
	acquireOf = NewScript("an attempt").ForNewcomers()
)

// queuedCalls adds so many calls.
func queuedCalls(q *queue, s *Script, n int, due time.Time) []*Call {
	calls := make([]*Call, n)
	for i := range calls {
		calls[i] = NewCall(nil, s, nil)
		calls[i].Due = due
		q.add(calls[i])
	}
	return calls
}

// composition says what a batch consists of, in its order.
func composition(batch []*Call) string {
	var parts []string
	for i := 0; i < len(batch); {
		s, n := batch[i].command.script, 0
		for i < len(batch) && batch[i].command.script == s {
			i, n = i+1, n+1
		}
		parts = append(parts, fmt.Sprint(n, " ", strings.Fields(s.source)[1]))
	}
	return strings.Join(parts, ", ")
}

func TestNewcomersHaveAShareUntilARenewalIsDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		releases, renewals, attempts int
		due                          time.Duration
		gone                         int // attempts that are withdrawn
		want                         string
	}{
		"nothing waits":                             {want: ""},
		"attempts alone":                            {attempts: 300, want: "128 attempt"},
		"releases go first":                         {releases: 10, attempts: 300, want: "10 release, 118 attempt"},
		"and then renewals":                         {releases: 10, renewals: 20, attempts: 300, due: time.Second, want: "10 release, 20 renewal, 98 attempt"},
		"a share among many releases":               {releases: 300, attempts: 300, want: "96 release, 32 attempt"},
		"a share among many renewals":               {releases: 10, renewals: 300, attempts: 300, due: time.Second, want: "10 release, 86 renewal, 32 attempt"},
		"no more than are there":                    {renewals: 300, attempts: 3, due: time.Second, want: "125 renewal, 3 attempt"},
		"next to none while a renewal is due":       {renewals: 300, attempts: 300, due: 0, want: "126 renewal, 2 attempt"},
		"what is left while a renewal is due":       {renewals: 100, attempts: 300, due: -time.Second, want: "100 renewal, 28 attempt"},
		"newcomers that have gone leave no gap":     {renewals: 300, attempts: 20, gone: 18, due: time.Second, want: "108 renewal, 2 attempt, 18 renewal"},
		"all newcomers that waited have gone":       {renewals: 300, attempts: 20, gone: 20, due: time.Second, want: "128 renewal"},
		"releases before renewals that are due":     {releases: 300, renewals: 300, attempts: 300, due: 0, want: "126 release, 2 attempt"},
		"renewals that wait for nobody else at all": {renewals: 300, due: time.Second, want: "128 renewal"},
	} {
		var q queue
		attempts := queuedCalls(&q, acquireOf, tt.attempts, time.Time{})
		queuedCalls(&q, renewOf, tt.renewals, now.Add(tt.due))
		queuedCalls(&q, releaseOf, tt.releases, time.Time{})
		for _, c := range attempts[:tt.gone] {
			q.withdraw(c)
		}
		if got := composition(q.take(now)); got != tt.want {
			t.Errorf("%s: a batch of %s, want %s", name, got, tt.want)
		}
	}
}

func TestTheRenewalThatIsDueFirstGoesFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var q queue
	queuedCalls(&q, renewOf, 100_000, now.Add(5*time.Second))
	short := queuedCalls(&q, renewOf, 1, now.Add(200*time.Millisecond))
	queuedCalls(&q, acquireOf, 100, time.Time{})
	if q.renewals.overdue(now) || !q.renewals.overdue(now.Add(200*time.Millisecond)) {
		t.Error("the renewal is not due when it says")
	}
	if batch := q.take(now); batch[0] != short[0] {
		t.Error("a renewal of a short lease waits behind those of long ones")
	}
	if q.renewals.overdue(now.Add(time.Second)) {
		t.Error("a renewal is due that is on its way")
	}
}

// Whatever is queued, withdrawn and taken: each call goes out once, in its order, unless it is withdrawn.
func TestAQueueLosesNoCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		now := time.Now()
		waiting := map[*Script][]*Call{}
		forget := func(c *Call) {
			s := c.command.script
			waiting[s] = slices.DeleteFunc(waiting[s], func(other *Call) bool { return other == c })
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				s := rapid.SampledFrom([]*Script{releaseOf, renewOf, acquireOf}).Draw(t, "script")
				due := now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "due")) * time.Second)
				waiting[s] = append(waiting[s], queuedCalls(&q, s, rapid.IntRange(1, 200).Draw(t, "calls"), due)...)
			case 2:
				for s, calls := range waiting {
					for _, c := range slices.Clone(calls[:rapid.IntRange(0, len(calls)).Draw(t, "gone "+s.source)]) {
						if !q.withdraw(c) || q.withdraw(c) {
							t.Fatal("a call that waits is withdrawn once")
						}
						forget(c)
					}
				}
			default:
				total := len(waiting[releaseOf]) + len(waiting[renewOf]) + len(waiting[acquireOf])
				batch := q.take(now)
				if len(batch) != min(total, maxBatch) {
					t.Fatalf("a batch of %d of %d calls", len(batch), total)
				}
				for _, c := range batch {
					s := c.command.script
					if i := slices.Index(waiting[s], c); i < 0 || s != renewOf && i > 0 {
						t.Fatalf("call %d of %q goes out", i, s.source)
					}
					for _, other := range waiting[s] {
						if s == renewOf && other.Due.Before(c.Due) {
							t.Fatal("a renewal goes before one that is due earlier")
						}
					}
					forget(c)
				}
			}
			if got := q.waiting() - q.withdrawn; got != len(waiting[releaseOf])+len(waiting[renewOf])+len(waiting[acquireOf]) {
				t.Fatalf("%d calls wait, of %v", got, waiting)
			}
		}
	})
}
