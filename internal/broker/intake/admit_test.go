package intake_test

import (
	"bytes"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// finder is an Intake whose tasks have no recorded keys: their IDs are their keys.
type finder struct {
	*intake.Intake
	single *locking.Single
	admin  *redis.Client
	proxy  *redistest.Proxy
}

func newFinder(t *testing.T, slots, tasks int, keysIn func(id string) string) *finder {
	t.Helper()
	server := redistest.Start(t)
	f := &finder{admin: server.Client(t), proxy: redistest.NewProxy(t, server.Addr())}
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = f.proxy.Addr(), 300*time.Millisecond })
	var err error
	if f.single, err = locking.NewSingle(client, locking.SingleOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.single.Close() })
	enqueue(t, f.admin, "default", tasks)
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	f.Intake = intake.New(client, intake.Options{
		Slots: slots, Locks: locks.Colocated(f.single), Types: &types, KeysIn: func(message string) string {
			for i := range tasks {
				if id := "default" + string(rune('0'+i)); strings.Contains(message, id) {
					return keysIn(id)
				}
			}
			return ""
		},
	})
	return f
}

// all fetches so many tasks, which come in any order.
func (f *finder) all(t *testing.T, n int) map[string]intake.Task {
	t.Helper()
	tasks := map[string]intake.Task{}
	eventually(t, "tasks come", func() bool {
		for task, ok := f.Take(); ok; task, ok = f.Take() {
			tasks[task.ID] = task
		}
		if len(tasks) < n {
			_, _ = f.Fetch(t.Context(), "default") // it fails when its reply is lost
		}
		return len(tasks) >= n
	})
	return tasks
}

// locked returns the locks that are there.
func (f *finder) locked(t *testing.T) []string {
	t.Helper()
	return f.admin.Keys(t.Context(), "railtoken:lock:{default?}").Val()
}

func TestKeysFoundInTasksAreLockedBeforeTheRun(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 4, 4, func(id string) string {
		switch id {
		case "default2":
			return "" // its run has to say
		case "default3":
			return "default1"
		}
		return id
	})
	tasks := f.all(t, 4)
	for id, want := range map[string]struct{ taken, refused bool }{
		"default0": {taken: true}, "default1": {taken: true}, "default2": {}, "default3": {refused: true},
	} {
		if got := tasks[id]; (got.Taken != nil) != want.taken || (got.Refused != nil) != want.refused {
			t.Errorf("%s came with %+v and %+v, want %+v", id, got.Taken, got.Refused, want)
		}
	}
	if got := f.locked(t); len(got) != 2 {
		t.Errorf("locked are %v", got)
	}
}

func TestAKeyFunctionThatEndsItsGoroutineLosesNoTask(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 3, 3, func(id string) string {
		if id == "default1" {
			runtime.Goexit()
		}
		return id
	})
	if tasks := f.all(t, 3); tasks["default0"].Taken == nil || tasks["default1"].Taken != nil {
		t.Errorf("the tasks are %+v", tasks)
	}
}

// isAdmission reports whether a request takes the locks of keys that were found: it has the beginning of a task's message.
func isAdmission(request []byte) bool { return bytes.Contains(request, []byte("\n\x04test")) }

func TestALostReplyOfAnAdmissionTakesEachLockOnce(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 4, 4, func(id string) string { return id })
	var cut atomic.Int32
	f.proxy.Cut(func(request, _ []byte) bool { return isAdmission(request) && cut.Add(1) <= 3 })
	tasks := f.all(t, 4)
	if cut.Load() < 3 {
		t.Fatalf("only %d replies were cut", cut.Load())
	}
	for id, task := range tasks {
		if task.Taken == nil {
			t.Errorf("%s came without its lock, which is held by %q", id, f.admin.Get(t.Context(), "railtoken:lock:{"+id+"}").Val())
			continue
		}
		if owner := f.admin.Get(t.Context(), "railtoken:lock:{"+id+"}").Val(); owner != task.Taken.Owner {
			t.Errorf("%s holds its lock as %q, Redis says %q", id, task.Taken.Owner, owner)
		}
	}
}

// The first attempt at an admission hangs somewhere, is sent again, and arrives when the tasks have ended: nobody would release
// what it takes.
func TestAnAdmissionThatComesLateTakesNoLock(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 2, 2, func(id string) string { return id })
	var first atomic.Bool
	held := f.proxy.Hold(func(request []byte) bool { return isAdmission(request) && first.CompareAndSwap(false, true) })
	ctx := t.Context()
	for id, task := range f.all(t, 2) {
		if task.Taken == nil {
			t.Fatalf("%s came without its lock", id)
		}
		task.Taken.Release(nil).Run(ctx, false) // its handler has released it, and goes on
	}
	if got := f.locked(t); len(got) != 0 {
		t.Fatalf("locked are %v", got)
	}
	held.Deliver()
	if got := f.locked(t); len(got) != 0 {
		t.Errorf("the late call has locked %v", got)
	}
}

// The first attempt has parked one of the tasks, or another server has it by now; only the reply was lost.
func TestARepeatedAdmissionLeavesATaskThatIsGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]any{
		"parked": {"state", "retry"}, "in another run": {"pending_since", "another.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFinder(t, 3, 3, func(id string) string { return id })
			var cut atomic.Bool
			f.proxy.Cut(func(request, _ []byte) bool {
				if !isAdmission(request) || !cut.CompareAndSwap(false, true) {
					return false
				}
				f.admin.HSet(t.Context(), "asynq:{default}:t:default1", gone...)
				return true
			})
			tasks := f.all(t, 2)
			if _, ok := f.Take(); ok || len(tasks) != 2 || tasks["default1"].ID != "" {
				t.Errorf("asynq gets %v, and more: %t", tasks, ok)
			}
		})
	}
}

// A task that is gone when its locks are to be taken leaves its slot to another one.
func TestAFetchWhoseOnlyTaskIsGoneIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 1, 1, func(id string) string { return id })
	for _, gone := range []bool{false, true} {
		if gone {
			f.admin.HSet(t.Context(), "asynq:{default}:t:default0", "state", "retry")
		}
		if more, err := f.Fetch(t.Context(), "default"); !more || err != nil {
			t.Errorf("gone %t: there are more is %t, error %v", gone, more, err)
		}
	}
	if task, ok := f.Take(); ok {
		t.Errorf("asynq gets %+v", task)
	}
}

func TestAnAcknowledgementTakesTheNextLocks(t *testing.T) {
	t.Parallel()
	f := newFinder(t, 2, 3, func(id string) string { return id })
	for id := range f.all(t, 2) { // the first acknowledgement brings the third task, and the second takes its lock
		if ok, err := f.Acknowledge(t.Context(), intake.Acknowledgement{
			Queue: "default", ID: id, Text: doneText, Keys: []string{"asynq:{default}:t:" + id, "asynq:{default}:active"}, Args: []any{id},
		}); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
	}
	if task, ok := f.Take(); !ok || task.Taken == nil {
		t.Errorf("asynq gets %+v, %t; want a task with its lock", task, ok)
	}
}

func TestATaskThatWaitsForItsLockGoesBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(*finder){
		"soon": func(*finder) {}, "at the end": func(f *finder) { f.Drain(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFinder(t, 2, 2, func(id string) string { return id })
			if more, err := f.Fetch(t.Context(), "default"); !more || err != nil {
				t.Fatalf("%t, %v", more, err)
			}
			back(f)
			eventually(t, "they are pending", func() bool {
				return f.admin.LLen(t.Context(), "asynq:{default}:pending").Val() == 2 && f.admin.LLen(t.Context(), "asynq:{default}:active").Val() == 0
			})
			if got := f.locked(t); len(got) != 0 {
				t.Errorf("locked are %v", got)
			}
		})
	}
}

// What is recorded of a task counts: its keys are not looked for once more.
func TestRecordedKeysAreNotLookedFor(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	f := newFinder(t, 2, 2, func(id string) string {
		if id == "default0" {
			asked.Add(1)
		}
		return id
	})
	f.admin.HSet(t.Context(), "asynq:{default}:t:default0", "railtoken:keys", "recorded")
	tasks := f.all(t, 2)
	if got := tasks["default0"]; got.Taken == nil || got.Recorded != "recorded" || asked.Load() != 0 {
		t.Errorf("it comes with %+v for %q, and was looked at %d times", got.Taken, got.Recorded, asked.Load())
	}
}
