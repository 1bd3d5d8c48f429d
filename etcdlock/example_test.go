package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/locking"
)

// Locks on etcd, behind a Gate for the callers of this process.
func Example() {
	ctx := context.Background()
	endpoints, stop := anEtcd(ctx)
	defer stop()

	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locks, err := etcdlock.New(client, etcdlock.Options{Label: "host-7/worker"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	gate := locking.NewGate(locks, locking.GateOptions{})

	keys := []string{"order:1042", "warehouse:kiel"} // both or none
	err = locking.Do(ctx, gate, keys, locking.Options{}, func(ctx context.Context, lease *locking.Lease) error {
		token, err := lease.FenceOf(ctx, "order:1042") // so that the database can refuse smaller ones
		fmt.Println("fenced:", token > 0)

		_, refused := locks.Acquire(context.Background(), []string{"warehouse:kiel"}, locking.Options{})
		if held, ok := errors.AsType[*locking.HeldError](refused); ok {
			fmt.Println(held.Key, "is held by", held.Holder.Label)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// fenced: true
	// warehouse:kiel is held by host-7/worker
	// <nil>
}

// anEtcd starts an etcd.
func anEtcd(ctx context.Context) (endpoints []string, stop func()) {
	dir, err := os.MkdirTemp("", "etcdlock-")
	if err != nil {
		log.Fatal(err)
	}
	etcd, err := etcdtest.Start(ctx, dir, etcdtest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return etcd.Addrs(), func() { _ = errors.Join(etcd.End(), os.RemoveAll(dir)) }
}
