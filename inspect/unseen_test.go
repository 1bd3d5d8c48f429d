package inspect_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
)

// elsewhere is a Locker whose locks no Inspector finds, and whose backend is that of no lock server.
type elsewhere struct{ locking.Locker }

func newElsewhere(r *rig) elsewhere {
	r.Helper()
	locker, err := locking.NewSingle(r.client, locking.SingleOptions{RedisKey: func(key string) string { return "{" + key + "}" }})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = locker.Close() })
	return elsewhere{locker}
}

func TestLookNamesReportedHolderInAnotherStore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	stop := r.holding(attach.Options{Locker: newElsewhere(r)}, "order:1", "first", release)
	look := func() *inspect.Holder {
		k, err := r.inspect.Look(t.Context(), "order:1", 0)
		if err != nil {
			t.Fatal(err)
		}
		return k.Holder
	}
	var h *inspect.Holder
	r.eventually("the task is reported", func() bool { h = look(); return h != nil })
	process := mustHostname(t) + "/" + strconv.Itoa(os.Getpid())
	if h.Backend != "inspect_test" || h.Owner != "" || h.Task == nil || h.Task.Task != (delayqueue.Task{Queue: "default", ID: "first"}) ||
		h.Label != process+"/order:audit/first" || h.Since != h.Task.Since || h.Since.IsZero() || h.Fence != h.Task.Fence {
		t.Errorf("the holder is %+v, of the task %+v", h, h.Task)
	}
	if k, err := r.inspect.Look(t.Context(), "order:2", 0); err != nil || k.Holder != nil {
		t.Errorf("a key that no worker reports: %+v, %v", k.Holder, err)
	}
	_, err := r.inspect.Depose(t.Context(), "order:1", inspect.Deposition{Expect: "0123456789abcdef", By: "ann", Why: "it hangs"})
	if !errors.Is(err, inspect.ErrChanged) || !strings.Contains(err.Error(), "another store (inspect_test)") ||
		!strings.Contains(err.Error(), process) {
		t.Errorf("Depose: %v", err)
	}
	_, err = r.inspect.Depose(t.Context(), "order:1", inspect.Deposition{Expect: h.Owner, By: "ann", Why: "it hangs"})
	if err == nil || !strings.Contains(err.Error(), "a store that Depose does not reach") {
		t.Errorf("Depose of the owner that Look shows: %v", err)
	}
	if audit, _ := r.inspect.Audit(t.Context(), 1); len(audit) > 0 {
		t.Errorf("the audit has %+v", audit)
	}

	// The task ends, and the report is still the one before.
	text := r.client.Get(t.Context(), "railtoken:worker:"+h.Task.Worker).Val()
	close(release)
	r.eventually("the task is done", func() bool {
		return r.client.Exists(t.Context(), "asynq:{default}:t:first").Val() == 0
	})
	stop()
	r.client.Set(t.Context(), "railtoken:worker:"+h.Task.Worker, text, limit)
	r.client.ZAdd(t.Context(), "railtoken:workers", redis.Z{Score: float64(h.Task.Seen.UnixMilli()), Member: h.Task.Worker})
	if len(r.workers()) != 1 {
		t.Fatal("the old report is not read")
	}
	if h := look(); h != nil {
		t.Errorf("held by a task that is done: %+v", h)
	}
}

func TestALockOnRedisOutweighsReportsOfOtherStores(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	defer close(release)
	r.holding(attach.Options{Locker: newElsewhere(r)}, "order:1", "first", release)
	r.eventually("the task is reported", func() bool { return len(r.workers()) == 1 && len(r.workers()[0].Held) == 1 })
	r.client.Set(t.Context(), "railtoken:lock:{order:1}", "a program", 0)
	k, err := r.inspect.Look(t.Context(), "order:1", 0)
	if err != nil || k.Holder == nil || k.Holder.Backend != "" || k.Holder.Owner == "" {
		t.Errorf("the holder is %+v, %v", k.Holder, err)
	}
}

func mustHostname(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return host
}
