//go:build suspend

package etcdlock_test

import (
	"fmt"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/suspendtest"
)

// suspendedOn names the etcd of a child whose machine is suspended.
const suspendedOn = "ETCDLOCK_SUSPENDED_ON"

func init() {
	addr := os.Getenv(suspendedOn)
	if addr == "" {
		return
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	l, err := etcdlock.New(client, etcdlock.Options{Prefix: "suspended/"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	suspendtest.Hold(l)
	os.Exit(0)
}

func TestASuspendedHolderOnEtcdTrustsNoLease(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	suspendtest.Run(t, childtest.Start(t, suspendedOn+"="+addrs[0]),
		newLocker(t, addrs, etcdlock.Options{Prefix: "suspended/"}))
}
