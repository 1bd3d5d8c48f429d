package line_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
)

// before parks a task before others.
func (r *rig) before(t line.Task, group string, keys ...string) line.Parked {
	r.Helper()
	return r.parkWith(t, keys[0], line.ParkOptions{Foremost: group, Also: r.keysOf(keys[1:])})
}

// supersedes has a task that waits for keys supersede a group, and returns the tasks that have ended.
func (r *rig) supersedes(t line.Task, group string, keys ...string) (ended []string) {
	r.Helper()
	all, err := r.Engine.Supersede(r.Context(), holdings.Supersession{Keys: r.keysOf(keys), Group: group, Queue: t.Queue, ID: t.ID}, false)
	if err != nil {
		r.Fatal(err)
	}
	for _, each := range all {
		ended = append(ended, each.ID)
	}
	return ended
}

func TestTheForemostWaitersAreBeforeAllOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		r.Park(r.Delayed("a"), "k")
		r.Park(r.Delayed("b"), "k")
		r.before(r.Delayed("first"), "g", "k")
		r.before(r.Delayed("second"), "g", "k")
		r.before(r.task("b"), "h", "k")               // it was an ordinary one until now
		want := []string{"b", "first", "second", "a"} // by their first refusals
		if got := r.Waiting("k"); !slices.Equal(got, want) {
			t.Errorf("waiting are %v, want %v", got, want)
		}
		points, err := line.Awaited{Engine: r.Engine}.Waiting(t.Context(), r.keysOf([]string{"k"}))
		if p := points[r.key("k")]; err != nil || p.Waiting != 4 || p.Oldest > time.Minute {
			t.Errorf("the report is %+v, %v", p, err)
		}
		if ahead := r.before(r.task("second"), "g", "k").Ahead; ahead != 2 {
			t.Errorf("refused again, %d are before it", ahead)
		}
		for _, want := range want {
			if woken := r.Wake("k"); woken.First().ID != want {
				t.Errorf("woken is %v, want %s", woken, want)
			}
		}
	})
}

// Of those that supersede a group the newest stays, whichever of its keys the others wait for. Those of other groups stay, and
// one that runs by now.
func TestOfTheForemostOfAGroupTheNewestStays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		r.Park(r.Delayed("ordinary"), "k")
		r.before(r.Delayed("old"), "g", "k")
		r.before(r.Delayed("also"), "g", "m")
		r.before(r.Delayed("other"), "h", "k")
		r.before(r.Delayed("runs"), "g", "k")
		newest := r.Delayed("newest")
		r.before(newest, "g", "k", "m")
		r.before(r.Delayed("later"), "g", "k")
		r.Begin(r.task("runs")) // its timer has brought it back
		if ended := r.supersedes(newest, "g", "k", "m"); !slices.Equal(ended, []string{"old", "also"}) {
			t.Errorf("ended are %v", ended)
		}
		for _, id := range []string{"old", "also"} {
			info, err := r.Inspect.GetTaskInfo(r.name, id)
			if want := "railtoken: cancelled by task " + newest.String() + ": superseded"; err != nil || info.State != asynq.TaskStateArchived || info.LastErr != want {
				t.Errorf("%s is %+v, %v", id, info, err)
			}
		}
		if state := r.State(r.task("runs")); state != asynq.TaskStateActive || r.Client.HExists(t.Context(), hash(r.task("runs")), line.CancelField).Val() {
			t.Errorf("the one that runs is %v, or is told", state)
		}
		if got, want := r.Waiting("k"), []string{"other", "runs", "newest", "later", "ordinary"}; !slices.Equal(got, want) {
			t.Errorf("waiting are %v, want %v", got, want)
		}
		if woken := r.Wake("k"); woken.First().ID != "other" {
			t.Errorf("woken is %+v", woken)
		}
		if ended := r.supersedes(r.task("other"), "h", "k"); len(ended) > 0 { // it waits no more
			t.Errorf("one that was woken ends %v", ended)
		}
	})
}

// It began before the others, which nothing says any more.
func TestATaskWhoseWorkerHasDiedEndsNoOthers(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		old := b.begins("old", deadRun, 10)
		if left := b.back(line.Remnant{Task: old, Run: deadRun, Silent: true}); left != line.Back {
			b.Fatalf("it is %v", left)
		}
		b.before(b.Delayed("newer"), "g", "k")
		b.Begin(old)
		b.before(old, "g", "k")
		if ended := b.supersedes(old, "g", "k"); len(ended) > 0 {
			b.Errorf("ended are %v", ended)
		}
		newest := b.Delayed("newest")
		b.before(newest, "g", "k")
		if ended := b.supersedes(newest, "g", "k"); !slices.Equal(ended, []string{"newer", "old"}) {
			b.Errorf("ended are %v", ended)
		}
	})
}

// Its handler has run in between, or an operator has moved it, or its strategy supersedes nothing any more.
func TestAForemostTaskThatIsRefusedAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		a, b := r.Delayed("a"), r.Delayed("b")
		r.before(a, "g", "k")
		r.Wake("k")
		r.Begin(a)
		r.Park(r.Delayed("ordinary"), "k")
		r.parkWith(a, "k", line.ParkOptions{Foremost: "g", Attempt: 1}) // it has failed, and is refused by its retry
		if got, want := r.Waiting("k"), []string{"a", "ordinary"}; !slices.Equal(got, want) {
			t.Errorf("after a retry wait %v, want %v", got, want)
		}
		r.before(b, "g", "k")
		if err := r.inspector().PutLast(t.Context(), r.key("k"), delayqueue.Task(a)); err != nil {
			t.Fatal(err)
		}
		r.parkWith(a, "k", line.ParkOptions{Foremost: "g", Attempt: 1})
		if got, want := r.Waiting("k"), []string{"b", "ordinary", "a"}; !slices.Equal(got, want) {
			t.Errorf("after it was put last wait %v, want %v", got, want)
		}
		if ended := r.supersedes(a, "g", "k"); len(ended) > 0 {
			t.Errorf("the older one ends %v", ended)
		}
		r.Wake("k")
		r.Begin(b)
		r.Park(b, "k")
		if got, want := r.Waiting("k"), []string{"ordinary", "a", "b"}; !slices.Equal(got, want) {
			t.Errorf("with another strategy wait %v, want %v", got, want)
		}
	})
}
