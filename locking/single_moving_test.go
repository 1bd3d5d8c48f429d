package locking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// moving returns a cluster and a locker on it.
func moving(t *testing.T) (*redistest.Cluster, *locking.Single) {
	t.Helper()
	cluster := redistest.StartCluster(t, 2)
	return cluster, newSingle(t, cluster.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }),
		locking.SingleOptions{})
}

// otherNode returns the node that has not the slot of a key.
func otherNode(cluster *redistest.Cluster, key string) *redistest.Server {
	if rediswire.Slot(lockOf(key)) < 16384/2 {
		return cluster.Nodes()[1]
	}
	return cluster.Nodes()[0]
}

// Whichever keys of the lock have moved, the lease goes on and can be given back.
func TestALeaseOutlivesASlotMove(t *testing.T) {
	t.Parallel()
	cluster, l := moving(t)
	for name, tc := range map[string]struct {
		move    []string // the parts of the lock that are moved, in two steps
		then    []string
		inQuest bool // of others
	}{
		"nothing": {nil, nil, false},
		"lock":    {[]string{""}, []string{":fence"}, false},
		"counter": {[]string{":fence"}, []string{""}, false},
		"notify":  {[]string{":notify"}, []string{"", ":fence"}, true},
		"all":     {[]string{"", ":fence", ":notify"}, nil, true},
	} {
		key := "order:" + name
		lease := acquire(t, l, locking.Options{}, key)
		if tc.inQuest {
			if _, err := l.Acquire(t.Context(), []string{key},
				locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
				t.Fatal(err)
			}
		}
		move := cluster.BeginMove(t, rediswire.Slot(lockOf(key)), otherNode(cluster, key))
		for _, parts := range [][]string{tc.move, tc.then} {
			var names []string
			for _, part := range parts {
				names = append(names, lockOf(key)+part)
			}
			if len(names) > 0 {
				move.Keys(t, names...)
			}
			if err := lease.Renew(t.Context()); err != nil {
				t.Errorf("%s: a renewal: %v", name, err)
			}
			began := time.Now()
			_, err := l.Acquire(t.Context(), []string{key}, locking.Options{})
			if !errors.Is(err, locking.ErrUnavailable) && !errors.Is(err, locking.ErrHeld) ||
				time.Since(began) > time.Second {
				t.Errorf("%s: another who wants the key gets %v after %v", name, err, time.Since(began))
			}
		}
		began := time.Now()
		release(t, lease)
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: the release took %v", name, took)
		}
		if n := cluster.Client(t).Exists(t.Context(), lockOf(key)).Val(); n != 0 {
			t.Errorf("%s: the lock is still there", name)
		}
		move.Finish(t)
		release(t, acquire(t, l, locking.Options{}, key))
	}
}

func TestAMovingSlotHidesNoLoss(t *testing.T) {
	t.Parallel()
	cluster, l := moving(t)
	lease := acquire(t, l, locking.Options{}, "order:1")
	move := cluster.BeginMove(t, rediswire.Slot(lockOf("order:1")), otherNode(cluster, "order:1"))
	move.Keys(t, lockOf("order:1"))
	if err := cluster.Client(t).Set(t.Context(), lockOf("order:1"), "another", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("a renewal of another's lock: %v", err)
	}
	_ = lease.Release(context.Background())
	if got := cluster.Client(t).Get(t.Context(), lockOf("order:1")).Val(); got != "another" {
		t.Errorf("the lock of another reads %q", got)
	}
	move.Finish(t)
}

// failing reports the failed attempts of a Locker.
type failing struct {
	locking.Locker
	attempts chan error
}

func (f failing) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	lease, err := f.Locker.Acquire(ctx, keys, opts)
	if err != nil {
		select {
		case f.attempts <- err:
		case <-ctx.Done():
		}
	}
	return lease, err
}

// Each of two servers takes the other for the master of the slot.
func TestCallsOutlastASlotWithoutAMaster(t *testing.T) {
	t.Parallel()
	cluster, l := moving(t)
	lease := acquire(t, l, locking.Options{}, "order:1")
	move := cluster.BeginMove(t, rediswire.Slot(lockOf("order:1")), otherNode(cluster, "order:1"))
	move.GiveUp(t)
	if err := lease.Renew(t.Context()); err == nil || lease.Err() != nil {
		t.Errorf("the renewal: %v, and the lease ended by %v", err, lease.Err())
	}
	released, waited := make(chan error, 1), make(chan error, 1)
	waiting := failing{l, make(chan error)}
	go func() {
		next, err := locking.Wait(t.Context(), waiting, []string{"order:1"}, locking.Options{})
		if err == nil {
			err = next.Release(t.Context())
		}
		waited <- err
	}()
	err := <-waiting.attempts
	isClear(t, err, "MOVED")
	if !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("an attempt: %v, want ErrUnavailable", err)
	}
	go func() { released <- lease.Release(t.Context()) }()
	move.Finish(t)
	for waited != nil {
		select {
		case <-waiting.attempts:
		case err := <-waited:
			waited = nil
			if err != nil {
				t.Errorf("wait: %v", err)
			}
		}
	}
	if err := <-released; errors.Is(err, locking.ErrLost) { // it may give up on a busy machine, and is repeated
		t.Errorf("release: %v", err)
	}
}

// Slots are moved to and fro while holders come and go: no lease is lost, and no two are held at the same time.
func TestLeasesOutliveMovesToAndFro(t *testing.T) {
	t.Parallel()
	cluster, l := moving(t)
	opts := locking.Options{TTL: 2 * time.Second}      // a busy machine renews it in time
	names := []string{"order:1", "order:2", "order:3"} // of different slots
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var holders [3]atomic.Int32
	var rounds atomic.Int32
	last := make([]int64, len(names))
	for i := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				want := names[i%2 : i%2+2] // each has order:2 and one more
				lease, err := locking.Wait(t.Context(), l, want, opts)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				for j := range want {
					if n := holders[i%2+j].Add(1); n != 1 {
						t.Errorf("%d holders of %s", n, want[j])
					}
					token, err := lease.FenceOf(t.Context(), want[j])
					if err != nil || token <= last[i%2+j] {
						t.Errorf("token %d of %s after %d, %v", token, want[j], last[i%2+j], err)
					}
					last[i%2+j] = token
				}
				if err := lease.Renew(t.Context()); err != nil {
					t.Errorf("renew: %v", err)
				}
				rounds.Add(1)
				for j := range want {
					holders[i%2+j].Add(-1)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	held := acquire(t, l, opts, "order:4", "order:5")
	for i := range 8 {
		for n := range 5 {
			key := fmt.Sprint("order:", n+1)
			to := otherNode(cluster, key)
			if i%2 == 1 {
				to = cluster.Nodes()[1-position(cluster, to)]
			}
			move := cluster.BeginMove(t, rediswire.Slot(lockOf(key)), to)
			if n < 3 {
				move.Finish(t)
				continue
			}
			// Longer than the TTL, with the lock on one side and the counter on the other.
			move.Keys(t, lockOf(key))
			if i == 0 {
				select {
				case <-held.Done():
				case <-time.After(opts.TTL * 3 / 2):
				}
			}
			move.Finish(t)
		}
	}
	close(stop)
	wg.Wait()
	if err := held.Err(); err != nil {
		t.Errorf("the lease that was held all the time: %v", err)
	}
	if n := rounds.Load(); n < 20 {
		t.Errorf("only %d leases", n)
	}
}

// position returns the position of a node.
func position(cluster *redistest.Cluster, node *redistest.Server) int {
	for i, n := range cluster.Nodes() {
		if n == node {
			return i
		}
	}
	return -1
}
