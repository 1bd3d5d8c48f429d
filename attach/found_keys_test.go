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

// queued is a server with a task that holds a key until end is closed, and another one that is parked on the key.
type queued struct {
	*rig
	a             *attach.Attached
	began, parked chan string
	end           chan struct{}
	runs          atomic.Int64 // of the waiter
}

func newQueued(t *testing.T, key string, keys middleware.KeyFunc, opts attach.Options) *queued {
	t.Helper()
	q := &queued{rig: newRig(t), began: make(chan string, 2), parked: make(chan string, 2), end: make(chan struct{})}
	opts.Observer = func(_ context.Context, e middleware.Event) {
		if e.Kind == middleware.Parked {
			q.parked <- e.Task.ID
		}
	}
	q.a = q.attach(asynq.Config{Concurrency: 4}, opts)
	locked := q.a.Lock(keys)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		q.began <- id
		<-q.end
		return nil
	}))
	q.serve(q.a.Client(), q.a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "waiter" {
			q.runs.Add(1)
		}
		return locked.ProcessTask(ctx, task)
	}))
	q.enqueue(key, asynq.TaskID("holder"))
	receive(t, q.began)
	q.enqueue(key, asynq.TaskID("waiter"))
	receive(t, q.parked)
	return q
}

// release ends the holder, after which the waiter begins.
func (q *queued) release() {
	q.Helper()
	close(q.end)
	if id := receive(q.T, q.began); id != "waiter" {
		q.Errorf("%s began, want the waiter", id)
	}
}

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
			var opts attach.Options
			if tt.locker != nil {
				opts.Locker = tt.locker(t)
			}
			q := newQueued(t, "a b", tt.keys, opts)
			if got := q.client.HGet(t.Context(), "asynq:{default}:t:waiter", "railtoken:keys").Val(); got != tt.want {
				t.Errorf("it is recorded with %q, want %q", got, tt.want)
			}
			q.release()
		})
	}
}

// A task that was woken and finds its key held once more is parked again without a run, if its keys can be found again before it.
// Otherwise its handler may lock other keys by now, which its run finds out.
func TestAWokenTaskThatIsRefusedAgainRunsOnlyIfItsKeysMayHaveChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys  middleware.KeyFunc
		apart bool // the locks are on another Redis
		runs  int64
	}{
		"found":                        {middleware.FixedKey("hot"), false, 0},
		"known in the run only":        {byPayload, false, 1},
		"apart, found":                 {middleware.FixedKey("hot"), true, 0},
		"apart, known in the run only": {byPayload, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opts attach.Options
			if tt.apart {
				opts.Locker = elsewhere(t)
			}
			q := newQueued(t, "hot", tt.keys, opts)
			before := q.runs.Load()
			if before != tt.runs {
				t.Errorf("it has run %d times before it was parked, want %d", before, tt.runs)
			}
			if woken, err := q.a.Queue().Wake(t.Context(), "hot", delayqueue.WakeOptions{}); err != nil || len(woken.Tasks) != 1 {
				t.Fatalf("%+v are woken, %v", woken, err)
			}
			receive(t, q.parked)
			if n := q.runs.Load() - before; n != tt.runs {
				t.Errorf("it has run %d times after its wake, want %d", n, tt.runs)
			}
			q.release()
		})
	}
}
