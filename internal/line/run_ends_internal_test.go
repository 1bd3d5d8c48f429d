package line

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/ends"
)

// active adds a task in a run, and returns the run.
func active(t *testing.T, e *Engine, client *redis.Client, id string) *Run {
	t.Helper()
	task := Task{"q", id}
	client.HSet(t.Context(), task.Hash(), "state", "active", "msg", messageOf(id, 0, 0), "pending_since", "run of "+id)
	client.LPush(t.Context(), asynqwire.Active("q"), id)
	client.ZAdd(t.Context(), asynqwire.Lease("q"), redis.Z{Member: id, Score: float64(time.Now().Add(30 * time.Second).Unix())})
	(*tasks)(e).Fetched(broker.Fetched{Queue: "q", ID: id, Run: "run of " + id, Message: messageOf(id, 0, 0)})
	return e.runs.of(task)
}

// waits reports whether a task is parked on a key.
func waits(t *testing.T, client *redis.Client, id, key string) bool {
	t.Helper()
	return client.ZScore(t.Context(), Names{}.Waiters(key), Task{"q", id}.Entry()).Err() == nil &&
		client.ZScore(t.Context(), asynqwire.Retry("q"), id).Err() == nil
}

func TestAnAcknowledgementParksItsOwnRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare  func(r *Run, client *redis.Client)
		ack      broker.Acknowledgement
		answered bool
		err      error
		parked   bool
		known    bool // the run is, after that
	}{
		"it waits":           {ack: broker.Acknowledgement{Script: "retry"}, answered: true, parked: true},
		"it does not wait":   {prepare: func(r *Run, _ *redis.Client) { r.Withdraw() }, ack: broker.Acknowledgement{Script: "done"}},
		"another run":        {ack: broker.Acknowledgement{Script: "retry", Run: "another"}, known: true},
		"asynq puts it back": {ack: broker.Acknowledgement{Script: "requeue"}},
		"it is gone": {
			prepare: func(r *Run, client *redis.Client) {
				client.Del(context.Background(), asynqwire.Active("q"), r.task.Hash())
			},
			ack: broker.Acknowledgement{Script: "retry"}, answered: true,
		},
		"again, after its end": {
			prepare: func(r *Run, _ *redis.Client) { r.End(context.Background()) },
			ack:     broker.Acknowledgement{Script: "retry", Repeated: true}, answered: true, err: errNotFound, parked: true,
		},
		"again, in the next run": {ack: broker.Acknowledgement{Script: "retry", Repeated: true}, answered: true, err: errNotFound, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				e, client := newVirtual(t, Options{Logger: textLog(&log)})
				r := active(t, e, client, "a")
				told := 0
				r.Park("k", ParkOptions{RetryAfter: time.Minute}, func(p Parked) { told = p.Count })
				if tc.prepare != nil {
					tc.prepare(r, client)
				}
				tc.ack.Queue, tc.ack.ID = "q", "a"
				answered, ended, err := (*tasks)(e).Acknowledge(t.Context(), tc.ack)
				if answered != tc.answered || !errors.Is(err, tc.err) || tc.err == nil && err != nil || ended != nil {
					t.Errorf("it is answered: %v, with %v", answered, err)
				}
				if known := e.runs.of(Task{"q", "a"}) != nil; !tc.ack.Repeated && known != tc.known {
					t.Errorf("once it is answered, its run is known: %v", known)
				}
				if !tc.ack.Repeated && tc.parked != waits(t, client, "a", "k") {
					t.Errorf("the task is parked: %v", !tc.parked)
				}
				e.pending.Wait()
				if parked := waits(t, client, "a", "k"); parked != tc.parked || (told == 1) != parked {
					t.Errorf("the task is parked: %v, and %d conflicts are told of", parked, told)
				}
				if known := e.runs.of(Task{"q", "a"}) != nil; known != tc.known {
					t.Errorf("its run is known: %v", known)
				}
				if log.Len() > 0 {
					t.Errorf("the log says %s", &log)
				}
			})
		})
	}
}

// A middleware that swallows the error of a waiting task, or a Config that counts it as a failure, is logged; the task waits all the same.
func TestAMistakenAcknowledgementIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			ack    broker.Acknowledgement
			judged bool
			says   string
		}{
			{broker.Acknowledgement{Script: "done"}, true, "swallowed its error"},
			{broker.Acknowledgement{Script: "markAsComplete"}, true, "swallowed its error"},
			{broker.Acknowledgement{Script: "retry", Counted: true}, true, "counted as failed"},
			{broker.Acknowledgement{Script: "retry", Counted: true}, false, ""},
		} {
			var log strings.Builder
			e, client := newVirtual(t, Options{Logger: textLog(&log)})
			r := active(t, e, client, "a")
			r.Park("k", ParkOptions{RetryAfter: time.Minute}, nil)
			if tc.judged {
				r.End(t.Context())
			}
			tc.ack.Queue, tc.ack.ID = "q", "a"
			if answered, _, err := (*tasks)(e).Acknowledge(t.Context(), tc.ack); !answered || err != nil || !waits(t, client, "a", "k") {
				t.Errorf("%+v: the task does not wait: %v", tc.ack, err)
			}
			if says := log.String(); (tc.says == "") != (says == "") || !strings.Contains(says, tc.says) {
				t.Errorf("%+v: the log says %q", tc.ack, says)
			}
		}
	})
}

// hearer notes the ends that it is told of.
type hearer struct{ heard []FinalRun }

func (h *hearer) Ending(r FinalRun) *ends.Ending {
	h.heard = append(h.heard, r)
	return nil
}

func TestTheEndOfATaskSaysWhatIsKnownOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("the reason")
		archived := failed(messageOf("a", 0, 0), 1, 1, failure.Error())
		for name, tc := range map[string]struct {
			run  func(e *Engine, r *Run)
			ack  broker.Acknowledgement
			want FinalRun
			none bool
		}{
			"it is done": {
				run: func(e *Engine, r *Run) { _, _ = e.Run(r.task) },
				ack: broker.Acknowledgement{Script: "done"}, want: FinalRun{Known: true, Message: messageOf("a", 0, 0)},
			},
			"it is archived": {
				run:  func(e *Engine, r *Run) { _, _ = e.Run(r.task); e.Failed(r.task, failure); r.Limited() },
				ack:  broker.Acknowledgement{Script: "archive", Message: archived, ArchivedAt: "7"},
				want: FinalRun{Known: true, Message: archived, Archived: true, ArchivedAt: "7", Err: failure, AtLimit: true},
			},
			"the recoverer archives it": {
				run:  func(e *Engine, r *Run) { _, _ = e.Run(r.task); e.Failed(r.task, errors.New("another")) },
				ack:  broker.Acknowledgement{Script: "archive", Message: archived},
				want: FinalRun{Message: archived, Archived: true},
			},
			"it has not failed here": {
				run:  func(e *Engine, r *Run) { _, _ = e.Run(r.task) },
				ack:  broker.Acknowledgement{Script: "archive", Message: archived},
				want: FinalRun{Message: archived, Archived: true},
			},
			"its handler has locks and was not called": {
				run: func(e *Engine, _ *Run) { e.parkers.learn("test", parksAll{}) },
				ack: broker.Acknowledgement{Script: "done"}, want: FinalRun{Known: true, Message: messageOf("a", 0, 0), Unbegun: true},
			},
			"its handler has no locks": {
				run: func(*Engine, *Run) {},
				ack: broker.Acknowledgement{Script: "done"}, want: FinalRun{Known: true, Message: messageOf("a", 0, 0)},
			},
			"its deadline had passed": {
				run: func(_ *Engine, r *Run) { r.message = messageOf("a", time.Now().Unix(), 0) },
				ack: broker.Acknowledgement{Script: "done"}, want: FinalRun{Known: true, Message: messageOf("a", time.Now().Unix(), 0), Unbegun: true},
			},
			"it waits":    {run: func(_ *Engine, r *Run) { r.Park("k", ParkOptions{}, nil) }, ack: broker.Acknowledgement{Script: "archive"}, none: true},
			"another run": {run: func(*Engine, *Run) {}, ack: broker.Acknowledgement{Script: "done", Run: "another"}},
		} {
			h := &hearer{}
			e, client := newVirtual(t, Options{})
			if (*tasks)(e).Ending(tc.ack) != nil {
				t.Error("nobody hears, and an end is marked")
			}
			e.Hear(h)
			tc.run(e, active(t, e, client, "a"))
			tc.ack.Queue, tc.ack.ID = "q", "a"
			_ = (*tasks)(e).Ending(tc.ack)
			if tc.none {
				if len(h.heard) > 0 {
					t.Errorf("%s: %+v", name, h.heard)
				}
				continue
			}
			tc.want.Task, tc.want.Run = Task{"q", "a"}, time.Now().Format(time.RFC3339Nano)
			if name != "another run" {
				tc.want.Run = "run of a"
			}
			if !tc.want.Known && tc.want.Archived {
				tc.want.Run = "run of a"
			}
			if len(h.heard) != 1 || h.heard[0] != tc.want {
				t.Errorf("%s: %+v, want %+v", name, h.heard, tc.want)
			}
		}
		none, _ := newVirtual(t, Options{})
		none.Failed(Task{"q", "unknown"}, failure)
	})
}

// A lease of a run is released by its acknowledgement, or without it after a second, or at once if the caller must do it.
func TestALeaseIsReleasedWithTheAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare    func(r *Run)
		opts       ReleaseOptions
		over       bool // Defer has nothing to leave
		left       bool // Release reports true
		kept, wait bool
		handsOff   bool
		wakes      int
		strict     bool
		place      colocated.Place
	}{
		"one that may wake":    {left: true, wakes: 1, strict: true},
		"with a follower":      {opts: ReleaseOptions{Followed: true}, handsOff: true, left: true, wakes: 2, strict: true},
		"a follower of none":   {opts: ReleaseOptions{Followed: true}, left: true, wakes: 1, strict: true},
		"one that is kept":     {kept: true, handsOff: true, opts: ReleaseOptions{Followed: true}, left: true, wakes: 1, strict: true},
		"one that is awaited":  {wait: true, left: true, strict: true},
		"committed":            {opts: ReleaseOptions{Committed: true}, left: true, wakes: 1},
		"in order, at its end": {opts: ReleaseOptions{Place: colocated.Leaves}, left: true, wakes: 1, strict: true, place: colocated.Leaves},
		"in order, and fails":  {opts: ReleaseOptions{Place: colocated.Stays}, left: true, strict: true, place: colocated.Stays},
		"it is over":           {over: true},
		"its task waits":       {prepare: func(r *Run) { r.Postpone(time.Second) }},
		"it is put back":       {prepare: func(r *Run) { r.putBack = true }},
		"the run is over":      {prepare: func(r *Run) { r.queue.runs.drop(r) }},
		"another one is left":  {prepare: func(r *Run) { r.release = &colocated.Release{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, client := newVirtual(t, Options{})
				r := active(t, e, client, "a")
				var ran, outcomes atomic.Int32
				release := colocated.NewRelease(nil, "me", nil, func(context.Context, bool) (colocated.Outcome, error) {
					ran.Add(1)
					return colocated.Outcome{}, nil
				})
				release.Kept, release.Awaited, release.HandsOff = tc.kept, tc.wait, tc.handsOff
				tc.opts.Keys = []string{"k"}
				tc.opts.Done = func(map[string]Woken, colocated.Outcome, error) { outcomes.Add(1) }
				tc.opts.Defer = func(done func(colocated.Outcome, error)) *colocated.Release {
					if tc.over {
						return nil
					}
					release.Then(done)
					return release
				}
				if r.Release(tc.opts) {
					t.Error("without locks beside the tasks, a release is left to the acknowledgement")
				}
				e.Colocate(noLocks{})
				if tc.prepare != nil {
					tc.prepare(r)
				}
				if left := r.Release(tc.opts); left != tc.left {
					t.Errorf("it is left to the acknowledgement: %v", left)
				}
				if tc.left && (release.Wakes != tc.wakes || release.Strict != tc.strict || release.Place != tc.place) {
					t.Errorf("it wakes %d, strict %v, place %q", release.Wakes, release.Strict, release.Place)
				}
				time.Sleep(unacknowledged - 1)
				synctest.Wait()
				if ran.Load() != 0 {
					t.Error("it is released before a second is over")
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if tc.left != (ran.Load() == 1) || tc.left != (outcomes.Load() == 1) {
					t.Errorf("without an acknowledgement it is released %d times, with %d outcomes", ran.Load(), outcomes.Load())
				}
				r.release = nil
			})
		})
	}
}

// noLocks are locks on the Redis of the tasks.
type noLocks struct{ colocated.Locks }

// What an acknowledgement has woken is told, noted and followed up; a key that is none is left out.
func TestWhatAnAcknowledgementWakesIsFollowedUp(t *testing.T) {
	t.Parallel()
	for _, inOrder := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told []Task
			e, _ := newVirtual(t, Options{Woken: func(t Task) { told = append(told, t) }})
			if e.wokenWith([]string{"k"}, nil, inOrder) != nil {
				t.Error("something was woken")
			}
			a, b, c := someTasks[0], someTasks[1], someTasks[2]
			got := e.wokenWith([]string{"k", "l"}, []colocated.Woken{
				{Key: 0, Entries: []string{a.Entry()}},
				{Key: 3, Entries: []string{a.Entry()}},
				{Key: 1, Left: 2, Pending: 0, Entries: []string{a.Entry(), b.Entry()}},
				{Key: 2, Left: 1, Pending: 1, Entries: []string{c.Entry()}},
			}, inOrder)
			if len(got) != 2 || !slices.Equal(got["k"].Tasks, []Task{a, b}) || got["k"].Left != 2 || !slices.Equal(got["l"].Tasks, []Task{c}) || got["l"].Left != 1 {
				t.Errorf("%+v", got)
			}
			if !slices.Equal(told, []Task{c}) {
				t.Errorf("pending are %v", told)
			}
			want := Task{}
			if inOrder {
				want = a
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if f := e.lastWakes["k"]; f == nil || f.target != (wakeTarget{"k", want}) {
				t.Errorf("checked later is %+v", f)
			}
			if len(e.lastWakes) != 2 {
				t.Errorf("%d wakes are checked later", len(e.lastWakes))
			}
		})
	}
}

// Of a type whose handlers lock what was recorded, tasks come with their locks; not if a record was wrong.
func TestATypeIsLearnedByWhatItsHandlersLock(t *testing.T) {
	t.Parallel()
	pure := parkerOf{}
	for name, tc := range map[string]struct {
		recorded string
		keys     []string
		parker   Parker
		want     bool
	}{
		"as recorded":                 {"a%20b c", []string{"a b", "c"}, parksAll{}, true},
		"others than recorded":        {"a", []string{"c"}, parksAll{}, false},
		"without a record":            {"", []string{"c"}, parksAll{}, false},
		"found without a record":      {"", []string{"c"}, pure, true},
		"others, although they found": {"a", []string{"c"}, pure, false},
	} {
		e := &Engine{}
		r := &Run{queue: e, recorded: tc.recorded}
		r.Learn("test", tc.keys, time.Minute, tc.parker)
		ttl, order := e.types.TTL("test")
		if (ttl == time.Minute) != tc.want || tc.want && order != tc.parker.Wait().Order {
			t.Errorf("%s: it is %v, in order %q", name, ttl, order)
		}
	}
}

// parkerOf is a Parker whose keys are known before the run.
type parkerOf struct{ parksAll }

func (parkerOf) Wait() colocated.Wait { return colocated.Wait{Order: "fifo"} }

func (parkerOf) Keys() func(*asynq.Task) []string {
	return func(*asynq.Task) []string { return []string{"c"} }
}

func textLog(to *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
