package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// locks returns a Single on the Redis of the rig.
func (r *rig) locks() *locking.Single {
	r.Helper()
	l, err := locking.NewSingle(r.client, locking.SingleOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { l.Close() })
	return l
}

// acquire locks keys, until the end of the test.
func (r *rig) acquire(l locking.Locker, keys ...string) *locking.Lease {
	r.Helper()
	lease, err := l.Acquire(r.Context(), keys, locking.Options{TTL: 3 * time.Second, MaxHold: time.Minute, Label: "holder"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// owner returns the name of the present holder of a key.
func (r *rig) owner(key string) string {
	r.Helper()
	k, err := r.inspect.Look(r.Context(), key, 1)
	if err != nil || k.Holder == nil {
		r.Fatalf("the key is held by %+v, %v", k.Holder, err)
	}
	return k.Holder.Owner
}

// by returns a deposition of an owner.
func by(owner string) inspect.Deposition {
	return inspect.Deposition{Expect: owner, By: "ann", Why: "it hangs"}
}

// wantDeposed checks that a lease ends because of a deposition.
func (r *rig) wantDeposed(lease *locking.Lease) {
	r.Helper()
	r.receive(lease.Done())
	if e, ok := errors.AsType[*locking.DeposedError](lease.Err()); !ok || *e != (locking.DeposedError{By: "ann", Why: "it hangs"}) ||
		!errors.Is(lease.Err(), locking.ErrLost) {
		r.Errorf("the lease ended with %v", lease.Err())
	}
}

func TestOnlyTheExpectedOwnerIsDeposed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.acquire(r.locks(), "k")
	if _, err := r.inspect.Depose(t.Context(), "k", by("0123456789abcdef")); !errors.Is(err, inspect.ErrChanged) {
		t.Errorf("another owner is deposed: %v", err)
	}
	if _, err := r.inspect.Depose(t.Context(), "free", by(r.owner("k"))); !errors.Is(err, inspect.ErrChanged) {
		t.Errorf("a free key has a holder: %v", err)
	}
	if lease.Err() != nil || lease.Renew(t.Context()) != nil {
		t.Errorf("the holder has lost its lease: %v", lease.Err())
	}
	if entries, err := r.inspect.Audit(t.Context(), 10); err != nil || len(entries) > 0 {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}

func TestHolderFindsItsDepositionWithoutNotification(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lease := r.acquire(r.locks(), "k") // nothing follows depositions
	if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
		t.Fatal(err)
	}
	r.wantDeposed(lease) // with its renewal, within a second
}

func TestJoinedLeaseEndsWithADeposedPart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.locks()
	parts := []*locking.Lease{r.acquire(l, "a"), r.acquire(l, "b", "c")}
	joined, err := locking.Join(t.Context(), parts, locking.Options{TTL: 3 * time.Second, MaxHold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, l)
	if _, err := r.inspect.Depose(t.Context(), "c", by(r.owner("c"))); err != nil {
		t.Fatal(err)
	}
	r.wantDeposed(joined)
	if err := joined.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the release says %v", err)
	}
	for _, key := range []string{"a", "b", "c"} {
		r.acquire(l, key) // each of them is free
	}
}

// follow has a Locker's leases end as soon as they are deposed, as attach does.
func follow(t *testing.T, l locking.Locker) {
	t.Helper()
	stop, err := locks.EndWhenDeposed(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

func TestFloorComesBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.locks()
	r.acquire(l, "k")
	d := by(r.owner("k"))
	refused := errors.New("the database is away")
	d.Floor = func(ctx context.Context, _ int64) error {
		if _, err := l.Acquire(ctx, []string{"k"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
			t.Errorf("the key can be had: %v", err)
		}
		return refused
	}
	first, err := r.inspect.Depose(t.Context(), "k", d)
	if !errors.Is(err, refused) || first == 0 {
		t.Fatalf("the floor is %d, %v", first, err)
	}
	if _, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Errorf("the key is free after a Floor that has failed: %v", err)
	}
	var got int64
	d.Floor = func(_ context.Context, floor int64) error { got = floor; return nil }
	second, err := r.inspect.Depose(t.Context(), "k", d)
	if err != nil || second <= first || got != second {
		t.Fatalf("repeated, the floors are %d and %d, %v", first, second, err)
	}
	r.acquire(l, "k")
}

func TestRepeatedDeposeLeavesTheNextHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.locks()
	r.acquire(l, "k")
	d := by(r.owner("k"))
	if _, err := r.inspect.Depose(t.Context(), "k", d); err != nil {
		t.Fatal(err)
	}
	if _, err := r.inspect.Depose(t.Context(), "k", d); err != nil {
		t.Errorf("repeated on the free key: %v", err)
	}
	next := r.acquire(l, "k")
	if _, err := r.inspect.Depose(t.Context(), "k", d); !errors.Is(err, inspect.ErrChanged) {
		t.Errorf("the next holder is deposed: %v", err)
	}
	if err := next.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLateCallsOfADeposedHolderChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := "railtoken:lock:{k}"
	victim := r.acquire(r.locks(), "k")
	value := r.client.Get(t.Context(), lock).Val()
	if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.client.Get(t.Context(), lock+":fence").Val(), " "+value[:16]+"@") {
		t.Error("late acquire calls of the victim are not refused")
	}
	next := r.acquire(r.locks(), "k")
	held := r.client.Get(t.Context(), lock).Val()
	if err := victim.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the victim renews: %v", err)
	}
	_ = victim.Release(t.Context())
	if now := r.client.Get(t.Context(), lock).Val(); now != held || next.Renew(t.Context()) != nil {
		t.Errorf("the lock of the next holder is %q; want %q", now, held)
	}
}

func TestLockOfAnotherProgramIsDeposed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client.Set(t.Context(), "railtoken:lock:{k}", "a program's \x00 value", 0)
	if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
		t.Fatal(err)
	}
	r.acquire(r.locks(), "k")
}

func TestDeposedTaskHasFailedAndRunsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runs := make(chan error, 10)
	began := make(chan struct{}, 10)
	r.serve(attach.Options{}, func(ctx context.Context, _ *asynq.Task) error {
		n, _ := asynq.GetRetryCount(ctx)
		began <- struct{}{}
		if n > 0 {
			runs <- nil
			return nil
		}
		<-ctx.Done()
		runs <- context.Cause(ctx)
		return nil // a success that does not count
	})
	r.enqueue("k", "a")
	r.receive(began)
	if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
		t.Fatal(err)
	}
	cause := <-runs
	if _, ok := errors.AsType[*locking.DeposedError](cause); !ok {
		t.Errorf("the context ended with %v", cause)
	}
	tasks := asynq.NewInspectorFromRedisClient(r.client)
	r.eventually("the task is retried", func() bool {
		info, err := tasks.GetTaskInfo("default", "a")
		return err == nil && info.State == asynq.TaskStateRetry && strings.Contains(info.LastErr, "deposed by ann: it hangs")
	})
}

// A worker that may not subscribe learns of the deposition from its acknowledgement.
func TestSuccessAfterADepositionDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	deaf := r.server.Client(t, r.server.User(t, "deaf", "~*", "+@all"))
	began, proceed := make(chan struct{}, 10), make(chan struct{}, 10)
	server := &rig{t, r.server, deaf, r.tasks, r.inspect}
	server.serve(attach.Options{Logger: slog.New(slog.DiscardHandler)}, func(context.Context, *asynq.Task) error {
		began <- struct{}{}
		<-proceed
		return nil
	})
	r.enqueue("k", "a")
	r.receive(began)
	if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
		t.Fatal(err)
	}
	proceed <- struct{}{}
	proceed <- struct{}{}
	r.receive(began) // it runs again
	if info, err := asynq.NewInspectorFromRedisClient(r.client).GetTaskInfo("default", "a"); err == nil && info.Retried > 0 {
		t.Errorf("the run has used up a retry: %q", info.LastErr)
	}
}

func TestDeposeOnAMinorityNamesTheServers(t *testing.T) {
	t.Parallel()
	nodes, servers := redlockNodes(t, 3)
	opts := unguarded
	i := newInspector(t, inspect.Options{Tasks: redistest.Start(t).Client(t), Nodes: nodes, Redlock: opts})
	r := &rig{TB: t, inspect: i}
	l, err := locking.NewRedlock(nodes, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lease := r.acquire(l, "k")
	follow(t, l)
	owner := r.owner("k")
	servers[0].Kill()
	servers[1].Kill()
	_, err = i.Depose(t.Context(), "k", by(owner))
	if err == nil || !strings.Contains(err.Error(), nodes[0].Addr) || !strings.Contains(err.Error(), nodes[1].Addr) {
		t.Fatalf("the error is %v", err)
	}
	servers[1].Restart(t)
	r.eventually("the Depose succeeds", func() bool {
		_, err := i.Depose(t.Context(), "k", by(owner))
		return err == nil
	})
	r.wantDeposed(lease)
	entries, err := i.Audit(t.Context(), 100)
	if err != nil || len(entries) < 4 || entries[0].Outcome != inspect.Done || entries[0].Floor == 0 ||
		entries[len(entries)-1].Outcome != inspect.Begun || entries[len(entries)-2].Outcome != inspect.Failed {
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}

func TestAuditHasWhoAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.acquire(r.locks(), "k")
	d := by(r.owner("k"))
	floor, err := r.inspect.Depose(t.Context(), "k", d)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := r.inspect.Audit(t.Context(), 10)
	if err != nil || len(entries) != 2 {
		t.Fatalf("the audit has %+v, %v", entries, err)
	}
	e := entries[0]
	if e.Outcome != inspect.Done || e.Key != "k" || e.Owner != d.Expect || e.Holder != "holder" || e.By != "ann" ||
		e.Why != "it hangs" || e.Floor != floor || time.Since(e.At).Abs() > time.Minute {
		t.Errorf("the entry is %+v", e)
	}
}

func TestTwoOperatorsDeposeOneHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.locks()
	r.acquire(l, "k")
	first, second := by(r.owner("k")), by(r.owner("k"))
	var high int64
	first.Floor = func(ctx context.Context, _ int64) (err error) {
		high, err = r.inspect.Depose(context.WithoutCancel(ctx), "k", second)
		return err
	}
	second.Floor = func(ctx context.Context, _ int64) error {
		if _, err := l.Acquire(ctx, []string{"k"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
			t.Errorf("the key can be had before the second operator's Floor has returned: %v", err)
		}
		return nil
	}
	low, err := r.inspect.Depose(t.Context(), "k", first)
	if err != nil || low <= 0 || high <= low {
		t.Errorf("the floors are %d and %d, %v", low, high, err)
	}
	r.acquire(l, "k")
}
