package line_test

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// Somebody waits for the end of a task that an operator cancels, or drops from its key.
func TestWhoWaitsForATaskHearsOfItsEndByHand(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(r *rig, task line.Task) (string, error){
		"dropped":   func(r *rig, task line.Task) (string, error) { return r.Engine.Drop(r.Context(), r.key("k"), task) },
		"discarded": func(r *rig, task line.Task) (string, error) { return r.cancels(task, true) },
		"archived":  func(r *rig, task line.Task) (string, error) { return r.cancels(task, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "standalone")
			task := r.Delayed("a")
			r.Park(task, "k")
			r.set(task, "railtoken:awaited", "one:"+r.name+" two:"+r.name)
			heard := r.Client.Subscribe(t.Context(), "one:"+r.name, "two:"+r.name)
			t.Cleanup(func() { _ = heard.Close() })
			for range 2 {
				if _, err := heard.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if what, err := ends(r, task); what != line.Ended || err != nil {
				t.Fatalf("%q, %v", what, err)
			}
			for range 2 {
				if m := receive(t, heard.Channel()); m.Payload != hash(task) {
					t.Errorf("%s says %q", m.Channel, m.Payload)
				}
			}
		})
	}
}

// cancels ends a task as an operator.
func (r *rig) cancels(t line.Task, discard bool) (string, error) {
	return r.Engine.Cancel(r.Context(), t, line.Cancellation{Discard: discard, By: "ann"})
}

// asynq's own tools leave the record of a wait when they archive a task.
func TestATaskThatIsReplayedHasWaitedForNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"other", "a"} {
			r.Park(r.Delayed(id), "k")
			if err := r.Inspect.ArchiveTask(r.name, id); err != nil {
				t.Fatal(err)
			}
			if err := r.inspector().Replay(t.Context(), delayqueue.Task(r.task(id))); err != nil {
				t.Fatal(err)
			}
			if n := r.conflicts(r.task(id)); n != 0 || r.State(r.task(id)) != asynq.TaskStatePending {
				t.Errorf("%s is %v, with %d conflicts", id, r.State(r.task(id)), n)
			}
		}
		pending := r.Client.LRange(t.Context(), r.task("a").Prefix()+"pending", 0, -1).Val()
		if !slices.Equal(pending, []string{"a", "other"}) {
			t.Errorf("pending are %q, want the later one behind the other", pending)
		}
	})
}

// One that is at an end already stays where it is.
func TestAWaiterMovesToAnEndOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b", "c"} {
			r.Park(r.Delayed(id), "k")
		}
		for _, tt := range []struct {
			id    string
			first bool
			want  []string
		}{
			{"b", true, []string{"b", "a", "c"}},
			{"b", true, []string{"b", "a", "c"}},
			{"a", false, []string{"b", "c", "a"}},
			{"a", false, []string{"b", "c", "a"}},
		} {
			before := r.Client.ZScore(t.Context(), r.registry("k"), entry(r.task(tt.id))).Val()
			stays := slices.Equal(r.Waiting("k"), tt.want)
			if found, err := r.Engine.Reorder(t.Context(), r.key("k"), r.task(tt.id), tt.first); !found || err != nil {
				t.Fatalf("%s: %t, %v", tt.id, found, err)
			}
			after := r.Client.ZScore(t.Context(), r.registry("k"), entry(r.task(tt.id))).Val()
			if got := r.Waiting("k"); !slices.Equal(got, tt.want) || stays != (before == after) {
				t.Errorf("%s, to the front %t: %q wait, and its place was %f and is %f", tt.id, tt.first, got, before, after)
			}
			if place := r.wait(r.task(tt.id)).Place; place != int64(after) {
				t.Errorf("%s: its record says %d, want %f", tt.id, place, after)
			}
		}
	})
}
