package intake_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// fetchesWithLocks returns an Intake that has fetched as many tasks with their locks.
func fetchesWithLocks(t *testing.T, client *redis.Client, slots int) *intake.Intake {
	t.Helper()
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{})
	in := intake.New(client, intake.Options{Slots: slots, Locks: locks.Colocated(single), Types: &types})
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	return in
}

// The key of the lock of one task has a value of another kind. The tasks behind it come all the same.
func TestALockThatCannotBeReadStopsNoFetch(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	enqueue(t, client, "default", 3)
	for _, id := range []string{"default0", "default1", "default2"} {
		client.HSet(t.Context(), "asynq:{default}:t:"+id, "railtoken:keys", id)
	}
	client.LPush(t.Context(), "railtoken:lock:{default1}", "of another program")
	in := fetchesWithLocks(t, client, 3)
	locked := map[string]bool{}
	for task, ok := in.Take(); ok; task, ok = in.Take() {
		locked[task.ID] = task.Taken != nil
	}
	if len(locked) != 3 || !locked["default0"] || locked["default1"] || !locked["default2"] {
		t.Errorf("fetched, and locked, are %v", locked)
	}
}

func TestATaskComesWithEachOfItsLocksOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	enqueue(t, client, "default", 1)
	client.HSet(t.Context(), "asynq:{default}:t:default0", "railtoken:keys", "c a b")
	in := fetchesWithLocks(t, client, 1)
	task, ok := in.Take()
	if !ok || task.Taken == nil || !slices.Equal(task.Taken.Keys, []string{"a", "b", "c"}) || len(task.Taken.Tops) != 3 {
		t.Errorf("it comes with %+v, %t", task.Taken, ok)
	}
}

// A caller that waits in a slot is notified of the release. The fetch in the same call must not take the key before it.
func TestAFetchLeavesAReleasedKeyToTheCallerThatWaits(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"somebody waits": true, "nobody waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			ctx := t.Context()
			single, err := locking.NewSingle(client, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = single.Close() })
			enqueue(t, client, "default", 2)
			for id, keys := range map[string]string{"default0": "order", "default1": "free order"} {
				client.HSet(ctx, "asynq:{default}:t:"+id, "railtoken:keys", keys)
			}
			var types colocated.Types
			types.Learn("test", time.Minute, colocated.Wait{})
			in := intake.New(client, intake.Options{Slots: 1, Locks: locks.Colocated(single), Types: &types})
			if _, err := in.Fetch(ctx, "default"); err != nil {
				t.Fatal(err)
			}
			holder, _ := in.Take()
			if holder.ID != "default0" || holder.Taken == nil {
				t.Fatalf("first comes %+v", holder)
			}
			if waits {
				client.Set(ctx, "railtoken:lock:{order}:notify", "1", time.Minute)
			}
			if ok, err := in.Acknowledge(ctx, intake.Acknowledgement{
				Queue: "default", ID: "default0", Text: doneText, Release: holder.Taken.Release(nil),
				Keys: []string{"asynq:{default}:t:default0", "asynq:{default}:active"}, Args: []any{"default0"},
			}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			next, _ := in.Take()
			if next.ID != "default1" || next.Taken == nil != waits || next.Refused != nil {
				t.Errorf("next comes %+v", next)
			}
			held := client.Exists(ctx, "railtoken:lock:{order}", "railtoken:lock:{free}").Val()
			if want := map[bool]int64{true: 0, false: 2}[waits]; held != want {
				t.Errorf("%d keys are held, want %d", held, want)
			}
		})
	}
}
