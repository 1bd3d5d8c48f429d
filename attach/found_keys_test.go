package attach_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// The first task that is parked on a key, and not by the script of a fetch, is recorded with the keys that its server has found, so
// that the fetch after its wake brings its locks. Without a key function that may be called early, or where the locks are
// elsewhere, nothing is recorded: it would be of no use.
func TestTheFirstParkedTaskIsRecordedWithItsFoundKeys(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys   middleware.KeyFunc
		locker func(t *testing.T) locking.Locker
		want   string
	}{
		"found":                 {middleware.FixedKey("a b"), nil, "a%20b"},
		"known in the run only": {byPayload, nil, ""},
		"locks elsewhere": {
			middleware.FixedKey("a b"),
			func(t *testing.T) locking.Locker { t.Helper(); return elsewhere(t) }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			began, parked, end := make(chan string, 2), make(chan string, 2), make(chan struct{})
			opts := attach.Options{Observer: func(_ context.Context, e middleware.Event) {
				if e.Kind == middleware.Parked {
					parked <- e.Task.ID
				}
			}}
			if tt.locker != nil {
				opts.Locker = tt.locker(t)
			}
			a := r.attach(asynq.Config{Concurrency: 4}, opts)
			r.serve(a.Client(), a.Config(), a.Lock(tt.keys)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				began <- id
				<-end
				return nil
			})))
			r.enqueue("a b", asynq.TaskID("holder"))
			receive(t, began)
			r.enqueue("a b", asynq.TaskID("waiter"))
			receive(t, parked)
			if got := r.client.HGet(t.Context(), "asynq:{default}:t:waiter", "railtoken:keys").Val(); got != tt.want {
				t.Errorf("it is recorded with %q, want %q", got, tt.want)
			}
			close(end)
			if id := receive(t, began); id != "waiter" {
				t.Errorf("%s began, want the waiter", id)
			}
		})
	}
}

// A task that was woken and finds its key held once more is parked again without a run, if its keys can be found again before it.
// Otherwise its handler may lock other keys by now, which its run finds out.
func TestAWokenTaskThatIsRefusedAgainRunsOnlyIfItsKeysMayHaveChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys middleware.KeyFunc
		runs int64
	}{
		"found":                 {middleware.FixedKey("hot"), 0},
		"known in the run only": {byPayload, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			began, parked, end := make(chan string, 2), make(chan string, 2), make(chan struct{})
			a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{Observer: func(_ context.Context, e middleware.Event) {
				if e.Kind == middleware.Parked {
					parked <- e.Task.ID
				}
			}})
			var runs atomic.Int64 // of the waiter
			locked := a.Lock(tt.keys)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				began <- id
				<-end
				return nil
			}))
			r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				if id, _ := asynq.GetTaskID(ctx); id == "waiter" {
					runs.Add(1)
				}
				return locked.ProcessTask(ctx, task)
			}))
			r.enqueue("hot", asynq.TaskID("holder"))
			receive(t, began)
			r.enqueue("hot", asynq.TaskID("waiter"))
			receive(t, parked)
			before := runs.Load()
			if woken, err := a.Queue().Wake(t.Context(), "hot", delayqueue.WakeOptions{}); err != nil || len(woken.Tasks) != 1 {
				t.Fatalf("%+v are woken, %v", woken, err)
			}
			receive(t, parked)
			if n := runs.Load() - before; n != tt.runs {
				t.Errorf("it has run %d times after its wake, want %d", n, tt.runs)
			}
			close(end)
			if id := receive(t, began); id != "waiter" {
				t.Errorf("%s began, want the waiter", id)
			}
		})
	}
}
