package etcdlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/locking"
)

// calls counts the calls of a client, each stream as one.
type calls struct{ unary, streams atomic.Int64 }

func (c *calls) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			c.unary.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			c.streams.Add(1)
			return streamer(ctx, desc, cc, method, opts...)
		}),
	}
}

// A process that gets little time must still renew all of its leases.
func TestRenewalsShareTheirCalls(t *testing.T) {
	t.Parallel()
	var c calls
	client, err := clientv3.New(clientv3.Config{
		Endpoints: sharedEtcd(t), Logger: zap.NewNop(), DialOptions: c.options(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l, err := etcdlock.New(client, etcdlock.Options{Prefix: "shared-calls/"})
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	var all sync.WaitGroup
	leases := make([]*locking.Lease, n)
	for i := range leases {
		all.Go(func() {
			lease, err := l.Acquire(t.Context(), []string{fmt.Sprint(i)}, locking.Options{TTL: time.Minute})
			if err != nil {
				t.Error(err)
			}
			leases[i] = lease
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	c.unary.Store(0)
	c.streams.Store(0)
	for _, lease := range leases {
		all.Go(func() {
			if err := lease.Renew(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if unary, streams := c.unary.Load(), c.streams.Load(); unary > n/10 || streams > n/10 {
		t.Errorf("%d renewals at the same time took %d calls and %d streams", n, unary, streams)
	}
	for _, lease := range leases {
		all.Go(func() { _ = lease.Release(t.Context()) })
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// What one grant of a batch has lost is no loss of the others.
func TestABatchLosesOnlyTheLocksThatAreGone(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	client := newClient(t, addrs)
	l := newLocker(t, addrs, etcdlock.Options{Prefix: "batch/"})
	const n = 60
	leases := make([]*locking.Lease, n)
	for i := range leases {
		leases[i] = acquire(t, l, locking.Options{TTL: time.Minute}, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
	}
	gone := func(i int) bool { return i%3 == 0 }
	for i := range leases {
		if gone(i) {
			if _, err := client.Delete(t.Context(), "batch/lock/"+fmt.Sprint(i, "b")); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all sync.WaitGroup
	for i, lease := range leases {
		all.Go(func() {
			err := lease.Renew(t.Context())
			lost, ok := err.(*locking.LostError) //nolint:errorlint // as it is
			switch {
			case !gone(i) && err != nil:
				t.Errorf("lease %d: %v", i, err)
			case gone(i) && (!ok || len(lost.Keys) != 1 || lost.Keys[0] != fmt.Sprint(i, "b")):
				t.Errorf("lease %d, of which one lock was deleted: %v", i, err)
			}
		})
	}
	all.Wait()
	for _, lease := range leases {
		_ = lease.Release(t.Context())
	}
}
