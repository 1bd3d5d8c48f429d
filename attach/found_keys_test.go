package attach_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
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
