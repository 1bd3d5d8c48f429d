package line_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// heals are the ways in which things go on after a crash.
var heals = map[string]func(r *rig, s scene){
	// Later wakes find who is in line, and the others' timers bring them back. Each of them gets its key and is done.
	"tasks run": tasksRun,
	// asynq does not know that its call has arrived, and repeats it.
	"the call is repeated": func(r *rig, s scene) {
		if !s.ends {
			tasksRun(r, s)
			return
		}
		if err := s.call(r, r.Engine); err != nil {
			r.Errorf("the repeated call: %v", err)
		}
		r.Engine.Settle()
		r.mustHaveOnce(s)
		if s.conflicts > 0 && r.conflicts(r.task("a")) != s.conflicts {
			r.Errorf("%d conflicts are counted, want %d", r.conflicts(r.task("a")), s.conflicts)
		}
		for _, key := range s.keys() {
			r.wakeAll(key)
		}
		if stranded := r.stranded(s); !s.unplaced && slices.Contains(stranded, "a") || len(stranded) > s.stranded {
			r.Errorf("%v depend on their timers", stranded)
		}
		r.runAll(s)
	},
	// Timers bring back those who wait, they are refused once more, and are then woken.
	"tasks park again": func(r *rig, s scene) {
		for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
			if id == s.next && r.on == "cluster" && slices.Contains(r.Waiting(s.tasks[id]), id) {
				r.Errorf("the wake that a had had was not passed on to %s", id)
			}
			if !r.isPending(r.task(id)) {
				r.Park(r.task(id), s.tasks[id])
			}
		}
		for _, key := range s.keys() {
			if got, want := r.Waiting(key), len(slices.Compact(slices.Sorted(slices.Values(r.Waiting(key))))); len(got) != want {
				r.Errorf("for %s wait %v", key, got)
			}
			r.wakeAll(key)
		}
		if stranded := r.stranded(s); len(stranded) > 0 {
			r.Errorf("%v were not woken", stranded)
		}
		r.runAll(s)
	},
	// An operator deletes them all, once they do not run.
	"tasks are deleted": func(r *rig, s scene) {
		for id := range s.tasks {
			if r.State(r.task(id)) == asynq.TaskStateActive {
				r.finish(r.task(id))
				continue
			}
			r.Remove(r.task(id))
		}
		for _, key := range s.keys() {
			r.wakeAll(key)
		}
	},
}

func tasksRun(r *rig, s scene) {
	for _, key := range s.keys() {
		r.wakeAll(key)
	}
	if stranded := r.stranded(s); len(stranded) > s.stranded {
		r.Errorf("%v depend on their timers, want at most %d", stranded, s.stranded)
	}
	r.runAll(s)
}

// stranded returns those that no wake has found.
func (r *rig) stranded(s scene) (ids []string) {
	r.Helper()
	for id := range s.tasks {
		if !r.isPending(r.task(id)) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s scene) keys() []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(s.also), maps.Values(s.tasks)))))
}

func TestACrashBetweenTheStepsCostsDelayAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		if err := line.LoadSteps(t.Context(), shared.clientOf(t, kind)); err != nil {
			t.Fatal(err)
		}
		for name, s := range scenes {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				crashes(t, kind, s)
			})
		}
	}
}

// crashes lets the call of a scene crash at each of its commands, and go on in each way.
func crashes(t *testing.T, kind string, s scene) {
	t.Helper()
	healthy, client := shared.clientOf(t, kind), shared.clientOf(t, kind)
	process := &redistest.Crash{}
	client.AddHook(process)
	for healing, heal := range heals {
		for n, struck := 0, true; struck; n++ {
			for _, last := range []bool{false, true} {
				if last && !process.Split() { // which of them arrive makes no difference
					continue
				}
				r := newRigOn(t, kind, healthy)
				s.setUp(r)
				process.After(1000, false)
				queue := r.newQueue(client, line.Options{})
				process.After(n, last)
				err := s.call(r, queue)
				_ = queue.Close()
				struck = process.Struck()
				if n == 0 && err == nil {
					t.Error("a call of which nothing arrived has succeeded")
				}
				if !struck && err != nil {
					t.Errorf("without a crash: %v", err)
				}
				r.mustHaveOnce(s)
				heal(r, s)
				r.mustHaveNothingLeft(s)
				if t.Failed() {
					t.Fatalf("after %d commands (%v), when %s", n, err, healing)
				}
			}
		}
	}
}

// mustHaveOnce fails the test when asynq has one of the tasks not exactly once: where it says, in a list that it
// empties, or active with a lease.
func (r *rig) mustHaveOnce(s scene) {
	r.Helper()
	for id := range s.tasks {
		t := r.task(id)
		lists, state := r.listsOf(t), r.State(t)
		leased := r.Client.ZScore(r.Context(), "asynq:{"+t.Queue+"}:lease", t.ID).Err() == nil
		if !slices.Equal(lists, []string{state.String()}) || leased != (state == asynq.TaskStateActive) ||
			state == asynq.TaskStateArchived {
			r.Errorf("%s is %v, in the lists %v, with a lease: %v", id, state, lists, leased)
		}
	}
}

// runAll lets each task take its key, wake the next, and be done.
func (r *rig) runAll(s scene) {
	r.Helper()
	for id, key := range s.tasks {
		r.Begin(r.task(id))
		if _, err := r.Engine.Wake(r.Context(), r.key(key), line.WakeOptions{Leaver: r.task(id)}); err != nil {
			r.Fatal(err)
		}
		r.finish(r.task(id))
	}
	for id := range s.tasks {
		if slices.Contains(r.parked(), entry(r.task(id))) {
			r.Errorf("%s is still in the index", id)
		}
	}
}

// mustHaveNothingLeft fails the test when somebody is still in a line, or counts as parked.
func (r *rig) mustHaveNothingLeft(s scene) {
	r.Helper()
	for _, key := range s.keys() {
		if got := r.Waiting(key); len(got) != 0 {
			r.Errorf("for %s wait %v for ever", key, got)
		}
	}
	if place := r.parkTotal(r.Delayed("new"), "k", 1); !r.hasPlace(r.task("new")) {
		r.Errorf("there is no room: %+v", place)
	}
	r.indexed("after a look", r.task("new"))
}

// wakeAll wakes until nobody is in line.
func (r *rig) wakeAll(key string) {
	r.Helper()
	for range 10 {
		if woken := r.Wake(key); len(woken.Tasks) == 0 && !woken.Pending {
			return
		}
	}
	r.Errorf("ten wakes did not empty the line for %s", key)
}

func (r *rig) isPending(t line.Task) bool {
	r.Helper()
	return slices.Contains(r.Client.LRange(r.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(), t.ID)
}

// finish does what asynq does with a task that is done.
func (r *rig) finish(t line.Task) {
	r.Helper()
	prefix := "asynq:{" + t.Queue + "}:"
	pipe := r.Client.Pipeline()
	pipe.LRem(r.Context(), prefix+"active", 0, t.ID)
	pipe.ZRem(r.Context(), prefix+"lease", t.ID)
	pipe.Del(r.Context(), hash(t))
	if _, err := pipe.Exec(r.Context()); err != nil {
		r.Fatal(err)
	}
}
