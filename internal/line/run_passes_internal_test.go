package line

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

func TestAnEngineNeedsAClientOfTheTasks(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	for name, client := range map[string]redis.UniversalClient{
		"none": nil, "a nil one": (*redis.Client)(nil), "a ring": ring, "a nil ring": (*redis.Ring)(nil),
	} {
		if e, err := New(client, Options{}); e != nil || err == nil {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	var none *Engine
	with, without := &Engine{}, &Engine{}
	with.Colocate(noLocks{})
	if none.Colocates(noLocks{}) || without.Colocates(nil) || without.Colocates(noLocks{}) || !with.Colocates(noLocks{}) || with.Colocates(nil) {
		t.Error("an Engine colocates other locks than its own")
	}
	if !with.HasColocated() || without.HasColocated() {
		t.Error("an Engine does not know whether it has locks")
	}
}

// waiting adds a task that is parked on a key.
func waiting(t *testing.T, e *Engine, client *redis.Client, id, key string) {
	t.Helper()
	r := active(t, e, client, id)
	if _, err := e.Park(t.Context(), r.task, key, ParkOptions{RetryAfter: time.Hour, nonce: r.nonce}); err != nil {
		t.Fatal(err)
	}
	e.runs.drop(r)
}

// A run that was woken for a key and locks others passes the wake on, unless it may still take the key.
func TestARunThatLocksAnotherKeyPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does func(r *Run)
		want bool
	}{
		"it locks its key":           {func(r *Run) { r.Took([]string{"other", "k"}, false) }, false},
		"it locks another one":       {func(r *Run) { r.Took([]string{"other"}, false) }, true},
		"it may still lock it":       {func(r *Run) { r.Took([]string{"other"}, true) }, false},
		"it has passed the wake on":  {func(r *Run) { r.Passed(); r.Took([]string{"other"}, false) }, false},
		"it was woken for none":      {func(r *Run) { r.owes = ""; r.Took([]string{"other"}, false) }, false},
		"for a key that is not ours": {func(r *Run) { r.owes = "mine"; r.Took([]string{"other"}, false) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var repaired []Task
				e, client := newVirtual(t, Options{Repaired: func(key string, t Task, lost bool) {
					if key == "k" && !lost {
						repaired = append(repaired, t)
					}
				}})
				waiting(t, e, client, "next", "k")
				r := active(t, e, client, "a")
				r.owes = Names{}.Waiters("k")
				for range 2 { // once
					tc.does(r)
					e.pending.Wait()
				}
				state := client.HGet(t.Context(), Task{"q", "next"}.Hash(), asynqwire.StateField).Val()
				if (state == "pending") != tc.want || (len(repaired) == 1) != tc.want {
					t.Errorf("the next task is %s, and told of are %v", state, repaired)
				}
			})
		})
	}
}

// A task whose lease was lost runs again after a second, without a retry.
func TestATaskWhoseLeaseWasLostRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		r := active(t, e, client, "a")
		r.held = heldBy{colocated.NewRelease(nil, "me", nil, func(context.Context, bool) (colocated.Outcome, error) {
			return colocated.Outcome{}, nil
		})}
		for _, repeated := range []broker.Acknowledgement{
			{Queue: "q", ID: "a", Script: "done", Repeated: true}, {Queue: "q", ID: "a", Script: "done", Run: "another"},
		} {
			if release, again := (*tasks)(e).Release(repeated); release != nil || again != nil {
				t.Errorf("%+v has a release", repeated)
			}
		}
		release, again := (*tasks)(e).Release(broker.Acknowledgement{Queue: "q", ID: "a", Script: "done"})
		if release == nil || !release.Strict {
			t.Errorf("of a success the release is %+v", release)
		}
		e.runs.drop(r)
		began := time.Now()
		again()
		e.pending.Wait()
		due := client.ZScore(t.Context(), asynqwire.Retry("q"), "a").Val()
		if due < float64(began.Unix())+1 || due > float64(began.Unix())+2 || client.LLen(t.Context(), asynqwire.Active("q")).Val() != 0 {
			t.Errorf("it is due in %v s", due-float64(began.Unix()))
		}
		if n := varintOf(client.HGet(t.Context(), r.task.Hash(), asynqwire.MessageField).Val(), retriedField); n != 0 {
			t.Errorf("it has used up %d retries", n)
		}
	})
}

// heldBy is a lease whose release is strict.
type heldBy struct{ release *colocated.Release }

func (h heldBy) Release(func([]string)) *colocated.Release {
	h.release.Strict = true
	return h.release
}

// Nothing is known of a task without an answer, and nothing more is to be looked after once a woken task has come or is gone.
func TestAWakeIsForgottenOnceItsTaskHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if came, late, err := e.haveCome(over, "k", someTasks); came || late != nil || err == nil {
			t.Errorf("without an answer a task has come: %v, late are %v, %v", came, late, err)
		}
		for _, state := range []string{"active", "archived"} {
			client.HSet(t.Context(), someTasks[0].Hash(), asynqwire.StateField, state)
			e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Tasks: someTasks[:1], Left: 1})
			time.Sleep(followUpFirst + time.Millisecond)
			synctest.Wait()
			e.mu.Lock()
			if n := len(e.lastWakes); n != 0 {
				t.Errorf("the task is %s, and %d wakes are looked after", state, n)
			}
			e.mu.Unlock()
		}
		client.HSet(t.Context(), someTasks[0].Hash(), asynqwire.StateField, "pending")
		client.ZAdd(t.Context(), Names{}.Waiters("k"), redis.Z{Member: someTasks[1].Entry(), Score: 1}) // in the queue of the late one
		e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Tasks: someTasks[:1], Left: 1})
		for _, wait := range []time.Duration{followUpFirst, 2 * followUpFirst} {
			time.Sleep(wait + time.Millisecond)
			synctest.Wait()
			e.mu.Lock()
			if f := e.lastWakes["k"]; f == nil || f.wait != 2*wait {
				t.Errorf("a wake whose task is late after %v is %+v", wait, f)
			}
			e.mu.Unlock()
		}
	})
}
