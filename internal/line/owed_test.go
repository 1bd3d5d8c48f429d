package line_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
)

// The process that has sent a wake ends before it looks whether the task has come.
func TestAWakeIsFollowedUpWhenItsSenderHasEnded(t *testing.T) {
	t.Parallel()
	for name, inOrder := range map[string]bool{"best effort": false, "in order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				first, next, last := r.begun("first"), r.begun("next"), r.begun("last")
				for i, task := range []line.Task{first, next, last} {
					if inOrder {
						r.joins(task, "k", int64(i+1))
					}
					r.Park(task, "k")
				}
				sender, other := r.newQueue(r.Client, line.Options{}), r.newQueue(r.Client, line.Options{})
				other.Conn(broker.Options{Queues: map[string]int{"elsewhere": 1}, Interval: time.Hour})
				if woken, err := sender.WakeNext(t.Context(), r.key("k"), line.WakeOptions{}); err != nil || woken.First() != first {
					t.Fatalf("woke %+v, %v", woken, err)
				}
				sender.Settle()
				if err := sender.Close(); err != nil {
					t.Fatal(err)
				}
				r.Remove(first)
				began := time.Now()
				for r.State(next).String() != "pending" {
					if time.Since(began) > 3*time.Second {
						t.Fatalf("the next waiter is not woken after %v", time.Since(began))
					}
					<-time.After(10 * time.Millisecond)
				}
				t.Logf("the next waiter was woken %v after the wake was lost", time.Since(began))
			})
		})
	}
}

func TestATaskThatHasComeOwesNoWake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.begun("first")
		r.Park(first, "k")
		r.Park(r.begun("next"), "k")
		r.Wake("k")
		r.Until("a wake is owed", func() bool { return r.Client.ZCard(t.Context(), r.index()+":owed").Val() == 1 })
		r.Begin(first)
		r.Until("none is owed", func() bool { return r.Client.ZCard(t.Context(), r.index()+":owed").Val() == 0 })
	})
}
