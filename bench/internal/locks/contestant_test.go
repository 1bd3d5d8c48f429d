package locks_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestEveryPairTakesTheKeyAndGivesItBack(t *testing.T) {
	t.Parallel()
	for _, kind := range together(locks.OneNode, locks.Stores) {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locker := open(t, kind, 1)
			for range 3 {
				mustTake(t, locker, "order:1")
			}
			servers.mustBeFree(t)
		})
	}
}

// mustTake takes the key at the first try.
func mustTake(t *testing.T, locker *locks.Locker, key string) {
	t.Helper()
	if err := locker.Try(t.Context(), key, func() {}); err != nil {
		t.Fatal(err)
	}
}

func TestEveryPairOnSeveralServersTakesTheKeyOnAMajority(t *testing.T) {
	t.Parallel()
	for _, kind := range locks.FiveNodes {
		if kind.Name == locks.Railtoken {
			continue // a test does not wait until its servers are old enough
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locker := open(t, kind, 3)
			for i := range 20 { // each with a key of its own: some release in the background
				mustTake(t, locker, strconv.Itoa(i))
			}
			if servers.etcd != nil { // whom it asks is its own affair
				servers.mustBeFree(t)
				return
			}
			took := 0
			for _, s := range servers.redis {
				info, err := s.Client(t).InfoMap(t.Context(), "commandstats").Result()
				if err != nil {
					t.Fatal(err)
				}
				if info["Commandstats"]["cmdstat_set"] != "" {
					took++
				}
			}
			if took < 2 { // some call the last one off when they have enough
				t.Errorf("%d of 3 servers were asked", took)
			}
		})
	}
}

func TestEveryContestantExcludesTheOthersAndWaits(t *testing.T) {
	t.Parallel()
	for _, kind := range together(locks.Contended, locks.WaitingStores) {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			servers, locker := open(t, kind, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var held, done atomic.Int32
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					err := locker.Wait(ctx, "order:1", func() {
						if held.Add(1) > 1 {
							t.Error("two hold the key")
						}
						runtime.Gosched() // the others have their chance to come in too
						held.Add(-1)
						done.Add(1)
					})
					// A waiter of rueidislock can miss the release, and then waits on.
					if err != nil && kind.Name != locks.NameRueidislock {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if done.Load() != 4 && kind.Name != locks.NameRueidislock || done.Load() == 0 {
				t.Errorf("%d of 4 got the key", done.Load())
			}
			servers.mustBeFree(t)
		})
	}
}

// together returns the kinds of both, of which the last and the first are the same.
func together(redis, stores []locks.Kind) []locks.Kind {
	return slices.CompactFunc(slices.Concat(redis, stores), func(a, b locks.Kind) bool { return a.Name == b.Name })
}

// servers are what a contestant locks on.
type servers struct {
	redis    []*redistest.Server
	etcd     *etcdtest.Cluster
	postgres func(sql string) string // in the contestant's database
}

func open(t *testing.T, kind locks.Kind, n int) (servers, *locks.Locker) {
	t.Helper()
	var s servers
	var addrs []string
	switch kind.Store {
	case locks.OnEtcd:
		testserver.Needed(t, "etcd", etcdtest.Find())
		var err error
		if s.etcd, err = etcdtest.Start(t.Context(), t.TempDir(), etcdtest.Options{Members: n}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.etcd.End(); err != nil {
				t.Error(err)
			}
		})
		addrs = s.etcd.Addrs()
	case locks.OnPostgres:
		p := dbtest.SharedPostgres(t)
		database := p.Database(t)
		addrs = []string{p.URL(database)}
		s.postgres = func(sql string) string { return p.Exec(t, database, sql) }
	default:
		for range n {
			r := redistest.Start(t)
			s.redis = append(s.redis, r)
			addrs = append(addrs, r.Addr())
		}
	}
	locker, err := kind.Open(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, locker
}

// mustBeFree fails when a server holds a key with an end that is a lock's: a fence counter lives longer.
func (s servers) mustBeFree(t *testing.T) {
	t.Helper()
	for _, r := range s.redis {
		client := r.Client(t)
		keys, err := client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if ttl := client.PTTL(t.Context(), key).Val(); ttl <= locks.TTL {
				t.Errorf("%s still holds %s for %v", r.Addr(), key, ttl)
			}
		}
	}
	if s.postgres != nil {
		locks := s.postgres("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = " +
			"(SELECT oid FROM pg_database WHERE datname = current_database())")
		rows := "0"
		// The table of the row lock, or the view of railtoken, whose table keeps rows of released locks.
		for table := range strings.FieldsSeq(s.postgres("SELECT oid::regclass FROM pg_class WHERE relname = 'held'")) {
			rows = s.postgres("SELECT count(*) FROM " + table)
		}
		if locks != "0" || rows != "0" {
			t.Errorf("PostgreSQL has %s advisory locks and %s rows", locks, rows)
		}
	}
	if s.etcd != nil {
		if kvs := s.etcdKeys(t); kvs.Count > 0 || kvs.Header.GetRevision() == 1 {
			t.Errorf("etcd holds %d keys at revision %d", kvs.Count, kvs.Header.GetRevision())
		}
	}
}

func (s servers) etcdKeys(t *testing.T) *clientv3.GetResponse {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.etcd.Addrs(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	kvs, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return kvs
}
