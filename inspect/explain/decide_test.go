package explain

import (
	"errors"
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
		"behind a silent worker": {
			with(func(f *facts) { f.position, f.silent, f.process = 3, 26*time.Second, "h/1" }),
			[]Cause{Behind, WorkerSilent},
			"in worker h/1, which has not been heard of for 26s: it is stopped, is cut off from Redis, or has died",
		},
		"held by a silent worker, paused": {
			with(func(f *facts) { f.silent, f.paused = 26*time.Second, true }),
			[]Cause{QueuePaused, Held, WorkerSilent},
			"paused",
		},
		"in a slot, for a silent worker": {
			with(func(f *facts) {
				f.state, f.lease, f.silent, f.process = "active", now.Add(29*time.Second), 26*time.Second, "h/1"
			}),
			[]Cause{WaitsInSlot, WorkerSilent},
			"in worker h/1, which has not been heard of for 26s",
		},
		"a full Redis forgets its servers": {
			with(func(f *facts) { f.refuses, f.unserved = errFull, true }),
			[]Cause{RefusesWrites, Held},
			"OOM",
		},
		"a full Redis keeps no heartbeat": {
			with(func(f *facts) {
				f.state, f.lease, f.holds, f.refuses = "active", now.Add(-time.Minute), true, errFull
			}),
			[]Cause{RefusesWrites, Running},
			"refuses writes",
		},
		"stopped or dead": {
			facts{now: now, state: "active", holds: true, lease: now.Add(-time.Minute)},
			[]Cause{WorkerDied},
			"its worker has not renewed asynq's lease, which ended at 2026-01-02T03:03:05Z: it has died, or stood still",
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

// errFull is what Redis answers to a write when its memory is full.
var errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'")

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
	f.unseen, f.process, f.elsewhere = "pglock", "h/1", true
	if e := decide(f); strings.Contains(e.Remedy, "depose") || !strings.Contains(e.Remedy, "stop that process") ||
		!strings.Contains(e.Remedy, "its worker h/1 still reports") {
		t.Errorf("in another store: %s", e.Remedy)
	}
	f.unseen, f.process, f.elsewhere = "", "", false
	f.holder = &locking.Holder{Remaining: -1} // of another program
	if e := decide(f); strings.Contains(e.Remedy, "depose") {
		t.Errorf("not known since when: %s", e.Remedy)
	}
}

func TestASilentHolderIsDeposedOrWaitedFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := facts{
		now: now, task: delayqueue.Task{Queue: "q", ID: "1"}, state: "retry", key: "a b", position: 2, silent: 26 * time.Second,
		holder: &locking.Holder{Label: "h/1/t/2", Since: now.Add(-time.Hour), Remaining: 10700 * time.Millisecond},
	}
	const dies = "if its worker is dead, the lock ends in 10.7s by itself"
	if e := decide(f); e.Remedy != dies+"; sooner: railtoken depose 'a b' --why REASON" {
		t.Errorf("of a waiter: %s", e.Remedy)
	}
	f.unseen, f.elsewhere, f.holder.Remaining = "pglock", true, 0
	if e := decide(f); e.Remedy != "if its worker is dead, the lock ends by itself; otherwise end that process" {
		t.Errorf("in another store: %s", e.Remedy)
	}
	own := facts{
		now: now, state: "active", holds: true, lease: now.Add(4 * time.Second), key: "a b",
		holder: &locking.Holder{Label: "h/1/t/1", Remaining: 10700 * time.Millisecond},
	}
	if e := decide(own); e.Cause != WorkerSilent || !strings.Contains(e.Remedy, dies+"; sooner: railtoken depose 'a b' --why REASON") {
		t.Errorf("of the holder: %s: %s", e.Cause, e.Remedy)
	}
}

func TestATaskWithoutAHandlerIsRunByHand(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := facts{
		now: now, task: delayqueue.Task{Queue: "audit", ID: "a b"}, taskType: "sum", state: "retry", retried: 1, most: 3,
		lastErr: "handler not found for task \"sum\"", due: now.Add(time.Hour),
	}
	const run = "asynq task run --queue=audit --id='a b'"
	if e := decide(f); e.Remedy != "start a worker that has a handler for tasks of type \"sum\", then, to run it before its time: "+run {
		t.Errorf("without a handler: %s", e.Remedy)
	}
	f.lastErr = "no paper"
	if e := decide(f); e.Remedy != "to run it before its time: "+run {
		t.Errorf("after a failure: %s", e.Remedy)
	}
	f.position, f.sequence, f.waiters, f.key = 0, place{position: 1, failed: true}, 2, "k"
	if e := decide(f); !strings.Contains(e.Remedy, "railtoken drop audit/a b; to run it before its time: "+run) {
		t.Errorf("with tasks behind it: %s", e.Remedy)
	}
}
