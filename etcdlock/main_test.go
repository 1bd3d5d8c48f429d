package etcdlock_test

import (
	"context"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // most tests wait
		panic(err)
	}
	leaktest.Verify(endEtcd{m})
}

// endEtcd ends the shared etcd after the tests.
type endEtcd struct{ goleak.TestingM }

func (e endEtcd) Run() int {
	defer func() {
		if shared.cluster != nil {
			_ = shared.cluster.End()
			_ = os.RemoveAll(shared.dir)
		}
	}()
	return e.TestingM.Run()
}

// shared is an etcd for tests that leave it alone. Each uses keys of its own.
var shared struct {
	once    sync.Once
	dir     string
	cluster *etcdtest.Cluster
	err     error
}

// sharedEtcd returns the addresses of an etcd of one member.
func sharedEtcd(t testing.TB) []string {
	t.Helper()
	testserver.Needed(t, "etcd", etcdtest.Find())
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "etcdlock-"); shared.err == nil { //nolint:usetesting // it outlives the test
			shared.cluster, shared.err = etcdtest.Start(context.Background(), shared.dir,
				etcdtest.Options{})
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster.Addrs()
}

// startEtcd starts an etcd for one test.
func startEtcd(t testing.TB, opts etcdtest.Options) *etcdtest.Cluster {
	t.Helper()
	testserver.Needed(t, "etcd", etcdtest.Find())
	c, err := etcdtest.Start(t.Context(), t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.End() })
	return c
}

// newClient returns a client that notices soon that a member hangs.
func newClient(t testing.TB, addrs []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(),
		DialTimeout: time.Second, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocker returns a Locker with a client of its own.
func newLocker(t testing.TB, addrs []string, opts etcdlock.Options) *etcdlock.Locker {
	t.Helper()
	l, err := etcdlock.New(newClient(t, addrs), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
