package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestSeveralCausesHaveAnOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	parked := facts{
		now: now, task: delayqueue.Task{Queue: "q", ID: "1"}, state: "retry", key: "k", position: 1, due: now.Add(time.Minute),
		holder: &locking.Holder{Label: "h/1/t/2", Since: now.Add(-time.Second)},
	}
	with := func(change func(*facts)) facts {
		f := parked
		change(&f)
		return f
	}
	for name, tc := range map[string]struct {
		facts facts
		want  []Cause
		says  string
	}{
		"held":               {parked, []Cause{Held}, "for 1s"},
		"held, one of three": {with(func(f *facts) { f.others = []string{"m", "n"} }), []Cause{Held}, "or one of its 2 other keys is released"},
		"a failed head": {with(func(f *facts) {
			f.position, f.holder, f.retried, f.sequence = 0, nil, 1, place{position: 1}
		}), []Cause{RetryLater}, "it has failed 1 of"},
		"paused, held":      {with(func(f *facts) { f.paused = true }), []Cause{QueuePaused, Held}, "paused"},
		"paused, unserved":  {with(func(f *facts) { f.paused, f.unserved = true, true }), []Cause{QueuePaused, Held}, "paused"},
		"unserved, behind":  {with(func(f *facts) { f.unserved, f.position = true, 2 }), []Cause{QueueUnserved, Behind}, "no running server"},
		"past its deadline": {with(func(f *facts) { f.deadline = now.Add(-time.Hour) }), []Cause{Overdue, Held}, "deadline was"},
		"no quorum, held": {
			with(func(f *facts) { f.votes = votes{servers: 3, reached: 1, may: 1} }),
			[]Cause{NoQuorum, Held},
			"only 1 of 3",
		},
		"quarantine, behind": {
			with(func(f *facts) { f.votes, f.position = votes{servers: 3, reached: 3, may: 1}, 3 }),
			[]Cause{Quarantined, Behind},
			"only 1 of 3 lock servers may vote",
		},
		"free, as far as is known": {
			with(func(f *facts) { f.holder, f.unseen = nil, "pglock" }),
			[]Cause{KeyFree},
			"no worker has reported that its key is held, and locks in another store (pglock) cannot be seen",
		},
		"a minority is dead": {with(func(f *facts) { f.votes = votes{servers: 3, reached: 2, may: 2} }), []Cause{Held}, "it is next"},
		"first, but woken first": {
			with(func(f *facts) {
				f.sequence = place{position: 3, first: delayqueue.Task{Queue: "q", ID: "0"}, state: "pending"}
			}),
			[]Cause{Behind},
			"the first of which is q/0 (pending)",
		},
		"the queue of the head is paused": {
			with(func(f *facts) {
				f.holder, f.sequence = nil, place{position: 2, first: delayqueue.Task{Queue: "other", ID: "0"}, state: "pending", paused: true}
			}),
			[]Cause{Behind, QueuePaused},
			`other/0 (pending); queue "other" of that task is paused, and no task overtakes it`,
		},
		"no server for the head": {
			with(func(f *facts) {
				f.holder, f.sequence = nil, place{position: 2, first: delayqueue.Task{Queue: "other", ID: "0"}, state: "pending", unserved: true}
			}),
			[]Cause{Behind, QueueUnserved},
			`no running server works on queue "other" of that task`,
		},
		"behind a parked one": {
			with(func(f *facts) { f.sequence = place{position: 2, state: "retry"} }),
			[]Cause{Behind},
			"behind one task",
		},
		"head, and failed": {
			with(func(f *facts) { f.position, f.retried, f.most, f.sequence = 0, 1, 3, place{position: 1, failed: true} }),
			[]Cause{RetryLater},
			"it has failed 1 of 4 times",
		},
		"postponed in an outage": {
			with(func(f *facts) { f.key, f.postponed, f.votes = "", true, votes{servers: 3} }),
			[]Cause{NoQuorum, RetryLater},
			"only 0 of 3",
		},
		"postponed, servers back": {
			with(func(f *facts) { f.key, f.postponed = "", true }),
			[]Cause{RetryLater},
			"could not reach the lock servers",
		},
		"no room among the waiters": {
			with(func(f *facts) { f.key, f.conflicts = "", 1 }),
			[]Cause{LimitReached},
			"limit on waiting tasks was reached",
		},
		"archived by FailFast": {
			facts{now: now, state: "archived", refused: failFast()}, []Cause{Archived}, "its strategy does not wait",
		},
		"running in an outage": {
			facts{now: now, state: "active", holds: true, lease: now.Add(29 * time.Second), votes: votes{servers: 3}},
			[]Cause{Running},
			"handler runs",
		},
		"running, with its key and waiters": {
			facts{
				now: now, state: "active", holds: true, lease: now.Add(29 * time.Second), key: "k", waiters: 3, runner: "h/1",
				holder: &locking.Holder{Label: "h/1/t/1", Since: now.Add(-time.Minute)},
			},
			[]Cause{Running},
			"its handler runs in worker h/1, and it holds key k since 2026-01-02T03:03:05Z, for which 3 tasks wait",
		},
		"running in a worker that is silent": {
			facts{
				now: now, state: "active", holds: true, lease: now.Add(8 * time.Second), key: "k", waiters: 1, runner: "h/1",
				holder: &locking.Holder{Label: "h/1/t/1", Remaining: 20 * time.Second},
			},
			[]Cause{WorkerSilent},
			"in worker h/1, which has not been heard of for 22s",
		},
		"completed":  {facts{now: now, state: "completed"}, []Cause{Completed}, "succeeded"},
		"in a group": {facts{now: now, state: "aggregating"}, []Cause{InGroup}, "group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := decide(tc.facts)
			if got := append([]Cause{e.Cause}, e.Also...); !slices.Equal(got, tc.want) {
				t.Errorf("causes %v, want %v", got, tc.want)
			}
			if !strings.Contains(e.Why+", "+e.Expected, tc.says) {
				t.Errorf("%q, %q do not say %q", e.Why, e.Expected, tc.says)
			}
			if e.Expected == "" {
				t.Error("nothing is said about its start")
			}
		})
	}
}

// failFast is why FailFast has a task archived.
func failFast() *middleware.ConflictError { return &middleware.ConflictError{Key: "k"} }

func TestALongHoldHasARemedy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := facts{
		now: now, task: delayqueue.Task{Queue: "q", ID: "1"}, state: "retry", key: "a b", position: 1,
		holder: &locking.Holder{Label: "h/1/t/2", Since: now.Add(-time.Second)},
	}
	if e := decide(f); e.Remedy != "" {
		t.Errorf("after a second: %s", e.Remedy)
	}
	f.holder.Since = now.Add(-time.Hour)
	for position, want := range map[int]string{1: "", 2: "; to let it run next: railtoken put-first q/1"} {
		f.position = position
		e := decide(f)
		if want = "2026-01-02T02:04:05Z, so its process lives: if it hangs, railtoken look 'a b' shows it, and " +
			"railtoken depose 'a b' --why REASON takes the key away" + want; !strings.HasSuffix(e.Remedy, want) {
			t.Errorf("at %d: %s", position, e.Remedy)
		}
	}
	f.unseen, f.process = "pglock", "h/1"
	if e := decide(f); strings.Contains(e.Remedy, "depose") || !strings.Contains(e.Remedy, "stop that process") ||
		!strings.Contains(e.Remedy, "its worker h/1 still reports") {
		t.Errorf("in another store: %s", e.Remedy)
	}
	f.unseen, f.process = "", ""
	f.holder = &locking.Holder{Remaining: -1} // of another program
	if e := decide(f); strings.Contains(e.Remedy, "depose") {
		t.Errorf("not known since when: %s", e.Remedy)
	}
}
