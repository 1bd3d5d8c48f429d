package server_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestAClusterOfEtcdServesWithoutAFollower(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, 3, nil)
	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := etcdClient(t, e.Addrs()[leader])
	first, second := (leader+1)%3, (leader+2)%3
	if err := e.Pause(first); err != nil {
		t.Fatal(err)
	}
	if err := put(t, client, 20*time.Second); err != nil {
		t.Errorf("without one of three: %v", err)
	}
	e.Kill(second)
	if err := put(t, client, 50*time.Millisecond); err == nil {
		t.Error("without two of three it still serves")
	}
	if err := e.Resume(first); err != nil {
		t.Fatal(err)
	}
	if err := put(t, client, 20*time.Second); err != nil {
		t.Errorf("after one has come back: %v", err)
	}
}

func TestMembersOfEtcdReachEachOtherOverADistance(t *testing.T) {
	t.Parallel()
	var proxies []*server.Proxy
	t.Cleanup(func() {
		for _, p := range proxies {
			_ = p.Close()
		}
	})
	const oneWay = 5 * time.Millisecond
	e := startEtcd(t, 3, func(ctx context.Context, addr string) (string, error) {
		p, err := server.StartProxy(ctx, addr, oneWay)
		if err != nil {
			return "", err
		}
		proxies = append(proxies, p)
		return p.Addr(), nil
	})
	leader, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := etcdClient(t, e.Addrs()[leader])
	began := time.Now()
	if err := put(t, client, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); len(proxies) != 3 || took < 2*oneWay {
		t.Errorf("a majority of three at a distance agreed in %v, with %d proxies", took, len(proxies))
	}
}

func TestEtcdLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, 1, nil)
	if version, err := e.Version(t.Context()); err != nil || version == "" {
		t.Errorf("its version is %q, %v", version, err)
	}
	if _, err := os.Stat(e.Dir()); err != nil {
		t.Fatal(err)
	}
	addr := e.Addrs()[0]
	if err := e.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(e.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if err := put(t, etcdClient(t, addr), 50*time.Millisecond); err == nil {
		t.Error("it still serves")
	}
}

func startEtcd(t *testing.T, n int, reach etcdtest.Reach) *etcdtest.Cluster {
	t.Helper()
	testserver.Needed(t, "etcd", etcdtest.Find())
	e, err := etcdtest.Start(t.Context(), t.TempDir(), etcdtest.Options{Members: n, Reach: reach})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.End() })
	return e
}

func etcdClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// put writes to etcd, again after an error until the time is over: an election may be under way.
func put(t *testing.T, client *clientv3.Client, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		_, err := client.Put(ctx, "key", "value")
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}
