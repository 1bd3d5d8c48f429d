package line_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// before parks a task before others.
func (r *rig) before(t line.Task, group string, keys ...string) line.Parked {
	r.Helper()
	return r.parkWith(t, keys[0], line.ParkOptions{Foremost: group, Also: r.keysOf(keys[1:])})
}

// began has a task count as begun, which was fetched a minute ago, and returns since when it counts.
func (b *begun) began(t line.Task) (time.Time, error) {
	return line.Began(b.Context(), b.Engine, t, time.Now().Add(-time.Minute))
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

// A task counts from its first refusal or begin, whatever has happened to it since: here its worker dies, and it fails.
func TestAnOlderTaskEndsNoNewerOnes(t *testing.T) {
	t.Parallel()
	onOne(t, func(b *begun) {
		old := b.begins("old", deadRun, 10)
		at, err := b.began(old)
		if ago := time.Since(at); err != nil || ago < time.Minute || ago > 2*time.Minute {
			b.Fatalf("it counts from %v, %v", at, err)
		}
		if left := b.back(line.Remnant{Task: old, Run: deadRun, Silent: true}); left != line.Back {
			b.Fatalf("it is %v", left)
		}
		b.before(b.Delayed("newer"), "g", "k")
		b.Begin(old)
		if again, err := b.began(old); err != nil || !again.Equal(at) {
			b.Errorf("it counts from %v, then from %v, %v", at, again, err)
		}
		b.before(old, "g", "k")
		if ended := b.supersedes(old, "g", "k"); len(ended) > 0 {
			b.Errorf("ended are %v", ended)
		}
		b.Begin(old)
		b.parkWith(old, "k", line.ParkOptions{Foremost: "g", Attempt: 1})
		if ended := b.supersedes(old, "g", "k"); len(ended) > 0 {
			b.Errorf("retried, it ends %v", ended)
		}
		b.before(b.Delayed("newest"), "g", "k")
		b.before(b.Delayed("earlier"), "g", "k")
		b.Client.HDel(b.Context(), hash(b.task("earlier")), "railtoken:since") // an earlier version has parked it
		ended := b.supersedes(b.task("newest"), "g", "k")
		slices.Sort(ended)
		if !slices.Equal(ended, []string{"newer", "old"}) {
			b.Errorf("ended are %v", ended)
		}
		if at, err := b.began(line.Task{Queue: b.queue, ID: "gone"}); err != nil || !at.IsZero() || b.Client.Exists(b.Context(), hash(b.task("gone"))).Val() != 0 {
			b.Errorf("a task that is gone counts from %v, %v", at, err)
		}
	})
}

// Each call may be lost before or after it was carried out. What fails is done when the task is refused again.
func TestASupersessionIsRepeatedAfterAnyLostCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lost := 0
	for n := 1; n <= 6; n++ {
		for _, carriedOut := range []bool{false, true} {
			client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
			r, calls, failed := newRigOn(t, "standalone", client), 0, false
			r.before(r.Delayed("old"), "g", "k")
			r.before(r.Delayed("also"), "g", "k")
			newest := r.Delayed("newest")
			r.before(newest, "g", "k")
			loses := func(ctx context.Context, cmds []redis.Cmder, next func() error) error {
				if name := cmds[0].Name(); name == "hello" || name == "client" {
					return next()
				}
				calls++
				if calls != n {
					return next()
				}
				if failed = true; carriedOut {
					_ = next()
				}
				for _, cmd := range cmds {
					_ = redistest.Fail(cmd, errLost)
				}
				return errLost
			}
			client.AddHook(lossy(loses))
			s := holdings.Supersession{Keys: r.keysOf([]string{"k"}), Group: "g", Queue: newest.Queue, ID: newest.ID}
			_, err := r.Engine.Supersede(t.Context(), s, false)
			if failed && err == nil {
				t.Errorf("call %d lost: no error", n)
			}
			if failed {
				lost++
			}
			if _, err := r.Engine.Supersede(t.Context(), s, false); err != nil {
				t.Error(err)
			}
			for _, id := range []string{"old", "also"} {
				if info, err := r.Inspect.GetTaskInfo(r.name, id); err != nil || info.State != asynq.TaskStateArchived {
					t.Errorf("call %d lost, carried out %v: %s is %+v, %v", n, carriedOut, id, info, err)
				}
			}
			if woken := r.Wake("k"); woken.First() != newest {
				t.Errorf("call %d lost, carried out %v: woken is %+v", n, carriedOut, woken)
			}
		}
	}
	if lost != 2*6 {
		t.Errorf("only %d calls were lost", lost)
	}
}

// told is a run that counts how often it is told.
type told struct{ times int }

func (t *told) Supersede(holdings.Supersession, holdings.Lease) { t.times++ }

// A run that has begun since the process has found those that hold the keys, or has given them back since, is not told: the task may be over,
// and an item that is done must not stop the others.
func TestOnlyRunsThatHoldTheKeysThroughoutAreTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	task := r.Delayed("successor")
	r.before(task, "g", "k")
	s := holdings.Supersession{Keys: r.keysOf([]string{"k"}), Group: "g", Queue: task.Queue, ID: task.ID}
	var throughout, gone, begun told
	holds := func(id string, by *told) *holdings.Holding {
		h := &holdings.Holding{Queue: r.name, ID: id, Keys: s.Keys, Holder: by}
		r.Engine.Held().Add(h)
		return h
	}
	holds("throughout", &throughout)
	left := holds("gone", &gone)
	found := r.Engine.Held().Of(s.Keys)
	r.Engine.Held().Remove(left)
	holds("begun", &begun)
	if err := line.CarryOut(t.Context(), r.Engine, s, found); err != nil {
		t.Fatal(err)
	}
	if throughout.times != 1 || gone.times != 0 || begun.times != 0 {
		t.Errorf("told are %d, %d and %d", throughout.times, gone.times, begun.times)
	}
}

// lossy loses calls: single commands and pipelines.
type lossy func(ctx context.Context, cmds []redis.Cmder, next func() error) error

func (l lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return l(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (l lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l(ctx, cmds, func() error { return next(ctx, cmds) })
	}
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
