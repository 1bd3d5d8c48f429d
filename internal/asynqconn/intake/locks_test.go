package intake_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/asynqconn/intake"
	"github.com/railtoken/railtoken/internal/fused"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
)

// The key of the lock of one task has a value of another kind. The tasks behind it come all the same.
func TestALockThatCannotBeReadStopsNoFetch(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	enqueue(t, client, "default", 3)
	for _, id := range []string{"default0", "default1", "default2"} {
		client.HSet(t.Context(), "asynq:{default}:t:"+id, "railtoken:keys", id)
	}
	client.LPush(t.Context(), "railtoken:lock:{default1}", "of another program")
	var types fused.Types
	types.Learn("test", time.Minute)
	in := intake.New(client, intake.Options{Slots: 3, Locks: fused.Of(single), Types: &types})
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	locked := map[string]bool{}
	for task, ok := in.Take(); ok; task, ok = in.Take() {
		locked[task.ID] = task.Taken != nil
	}
	if len(locked) != 3 || !locked["default0"] || locked["default1"] || !locked["default2"] {
		t.Errorf("fetched, and locked, are %v", locked)
	}
}
