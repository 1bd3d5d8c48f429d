package inspect_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestLookShowsHolderAndWaiters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	r.holding(attach.Options{}, "order:1", "first", release)
	r.enqueue("order:1", "second")
	var k inspect.KeyState
	r.eventually("one task holds the key and one waits", func() bool {
		var err error
		if k, err = r.inspect.Look(t.Context(), "order:1", 10); err != nil {
			t.Fatal(err)
		}
		return k.Waiting == 1 && k.Holder != nil && k.Holder.Task != nil
	})
	h := k.Holder
	if h.Task.Task.ID != "first" || !strings.HasSuffix(h.Label, "/order:audit/first") || len(h.Owner) != 16 || h.Votes != 1 ||
		h.Remaining <= 0 || h.Remaining > 30*time.Second || h.Fence < h.Task.Fence {
		t.Errorf("the holder is %+v, of the task %+v", h, h.Task)
	}
	if len(k.Servers) != 1 || k.Servers[0].Owner != h.Owner || k.Servers[0].Err != nil {
		t.Errorf("the servers say %+v", k.Servers)
	}
	if len(k.Waiters) != 1 || k.Waiters[0].Task.ID != "second" || k.Waiters[0].Position != 1 {
		t.Errorf("the waiters are %+v", k.Waiters)
	}
}

func TestLookShowsEachLockServer(t *testing.T) {
	t.Parallel()
	tasks := redistest.Start(t).Client(t)
	nodes, servers := redlockNodes(t, 3)
	servers[2].Kill()
	// Of three nodes two must answer, also on a busy machine.
	locker, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.Acquire(t.Context(), []string{"k"}, locking.Options{Label: "a-program"})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(t.Context()) //nolint:errcheck // one of the servers is dead
	token, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := newInspector(t, inspect.Options{Tasks: tasks, Nodes: nodes})
	k, err := i.Look(t.Context(), "k", 10)
	if err != nil {
		t.Fatal(err)
	}
	if k.Holder == nil || k.Holder.Label != "a-program" || k.Holder.Votes != 2 || k.Holder.Fence != token {
		t.Errorf("the holder is %+v; want the token %d", k.Holder, token)
	}
	if len(k.Servers) != 3 || k.Servers[2].Err == nil || k.Servers[2].Addr != nodes[2].Addr {
		t.Errorf("the servers say %+v", k.Servers)
	}
	if free, err := i.Look(t.Context(), "free", 10); err != nil || free.Holder != nil {
		t.Errorf("a free key is %+v, %v", free, err)
	}
}

func TestScanFindsLocksOfOtherPrograms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	r.client.Set(ctx, "railtoken:lock:{order:%31}", "not an encoding", 0)
	r.client.Set(ctx, "railtoken:lock:{a}", "a program", 0)
	r.client.Set(ctx, "railtoken:lock:{b%20b}", "a program", time.Minute)
	r.client.Set(ctx, "railtoken:lock:{a}:fence", "1", 0)
	found, complete, err := r.inspect.Scan(ctx, 10)
	if err != nil || !complete || !slices.Equal(slices.Sorted(slices.Values(found)), []string{"a", "b b"}) {
		t.Errorf("found %q, complete %t, %v", found, complete, err)
	}
	k, err := r.inspect.Look(ctx, "a", 10)
	if err != nil || k.Holder == nil || k.Holder.Label != "" || k.Holder.Owner == "" || k.Holder.Remaining >= 0 {
		t.Errorf("the key is held by %+v, %v", k.Holder, err)
	}
}

// redlockNodes starts lock servers.
func redlockNodes(t *testing.T, n int) (nodes []*redis.Options, servers []*redistest.Server) {
	t.Helper()
	for range n {
		s := redistest.Start(t)
		servers, nodes = append(servers, s), append(nodes, &redis.Options{Addr: s.Addr()})
	}
	return nodes, servers
}

func TestAReportFromBeforeTheLockNamesNoHolder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	r.holding(attach.Options{}, "order:1", "first", release)
	look := func() *inspect.Holder {
		k, err := r.inspect.Look(t.Context(), "order:1", 0)
		if err != nil {
			t.Fatal(err)
		}
		return k.Holder
	}
	r.eventually("the task is reported", func() bool { h := look(); return h != nil && h.Task != nil })
	if err := r.client.Del(t.Context(), "railtoken:lock:{order:1}").Err(); err != nil {
		t.Fatal(err)
	}
	locker, err := locking.NewSingle(r.client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	label := locking.DefaultLabel() + "/order:audit/second"
	r.eventually("a lock after the report names no task", func() bool { // again if the worker has reported since
		lease, err := locker.Acquire(t.Context(), []string{"order:1"}, locking.Options{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		h := look()
		if h == nil || h.Label != label {
			t.Fatalf("holder %+v, want the new one", h)
		}
		if h.Task != nil && h.Task.Seen.Before(h.Since) {
			t.Fatalf("holder %+v with the task of the report before", h)
		}
		return h.Task == nil
	})
}

func TestAClientThatIsNilIsRefused(t *testing.T) {
	t.Parallel()
	var none *redis.Client
	some := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer some.Close()
	for _, o := range []inspect.Options{{}, {Tasks: none}, {Tasks: some, Locks: none}} {
		if i, err := inspect.New(o); i != nil || err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := delayqueue.New(none, delayqueue.Options{}); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("a queue on no client: %v", err)
	}
	if _, err := new(inspect.Inspector).Look(t.Context(), "k", 1); err == nil || !strings.Contains(err.Error(), "make it by New") {
		t.Errorf("an Inspector that New has not made: %v", err)
	}
}
