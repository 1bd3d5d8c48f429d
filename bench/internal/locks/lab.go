package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/process"
)

// postgresSize is the room for a PostgreSQL.
const postgresSize = 512 << 20

// oneWay is how long bytes take to a server that is far away, and back again.
const oneWay = time.Millisecond

// place names a site.
type place struct {
	servers     int
	far, broken bool
	stores      bool // one etcd and a PostgreSQL instead
}

// site is where contestants find their servers: as many redis-servers as members of etcd, or the other stores. A store
// that is not installed is left out.
type site struct {
	redis fleet
	etcd  *etcdtest.Cluster
	// Where clients connect: proxies when the servers are far away.
	addrs map[Store][]string
}

type fleet = []*server.Server

// lab runs all servers.
type lab struct {
	env    *measure.Env
	fleets map[place]fleet
	closes []func() error // of the other stores and the proxies that run now
}

// installed leaves out the contestants whose server is not installed, and notes that in the table.
func (l *lab) installed(t *results.Table, kinds []Kind) []Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind Kind) bool {
		missing := kind.Store.Missing()
		if missing != nil {
			t.AddRow(kind.Name).Note = fmt.Sprintf("left out: %v; scripts/test-deps.sh installs it", missing)
			l.env.Report("%s, %s: %s", t.Name, kind.Name, t.Row(kind.Name).Note)
		}
		return missing != nil
	})
}

// fleet returns the redis-servers of a place, which are the same near and far.
func (l *lab) fleet(ctx context.Context, at place) (fleet, error) {
	at.far = false
	var err error
	if l.fleets[at] == nil {
		l.fleets[at], err = server.StartAll(ctx, l.env.Dir, at.servers)
	}
	return l.fleets[at], err
}

// site sets a site up, whose etcd and PostgreSQL run until endStores.
func (l *lab) site(ctx context.Context, at place) (*site, error) {
	reach := func(_ context.Context, addr string) (string, error) { return addr, nil }
	if at.far {
		reach = l.far
	}
	s := &site{}
	var err error
	if s.redis, err = l.fleet(ctx, at); err != nil {
		return nil, err
	}
	s.addrs = map[Store][]string{OnRedis: server.Addrs(s.redis)}
	if OnEtcd.Missing() == nil {
		if s.etcd, err = etcdtest.Start(ctx, l.env.Dir, etcdtest.Options{Members: at.servers, Reach: reach}); err != nil {
			return nil, err
		}
		s.addrs[OnEtcd] = slices.Clone(s.etcd.Addrs())
		l.runs(ctx, "etcd", s.etcd, s.etcd.InMemory())
	}
	if at.stores && OnPostgres.Missing() == nil {
		// It waits for its files as in production. They are in memory if there is room, as those of etcd.
		root, inMemory := process.MemoryDir(postgresSize)
		postgres, err := dbtest.RunPostgres(ctx, root, "fsync=on")
		if err != nil {
			return nil, err
		}
		s.addrs[OnPostgres] = []string{postgres.URL("postgres")}
		l.runs(ctx, "PostgreSQL", postgres, inMemory)
	}
	for _, addrs := range s.addrs {
		for i, addr := range addrs {
			if addrs[i], err = reach(ctx, addr); err != nil {
				return nil, err
			}
		}
	}
	if at.servers > 1 {
		err = l.awaitTrust(ctx, s)
	}
	return s, err
}

// store is an etcd or a PostgreSQL that runs.
type store interface {
	End() error
	Version(ctx context.Context) (string, error)
}

// runs notes that a store must be ended, and adds its version to the setting.
func (l *lab) runs(ctx context.Context, name string, s store, inMemory bool) {
	l.closes = append(l.closes, s.End)
	version, _ := s.Version(ctx) // "" is better than no figures
	where := "on disk"
	if inMemory {
		where = "in memory"
	}
	text := fmt.Sprintf("%s %s (data %s)", name, version, where)
	if versions := &l.env.Results.Setting.Versions; !slices.Contains(*versions, text) {
		*versions = append(*versions, text)
	}
}

func (l *lab) far(ctx context.Context, addr string) (string, error) {
	p, err := server.StartProxy(ctx, addr, oneWay)
	if err != nil {
		return "", err
	}
	l.closes = append(l.closes, p.Close)
	return p.Addr(), nil
}

// endStores ends everything but the redis-servers.
func (l *lab) endStores() error {
	var errs []error
	for _, end := range l.closes {
		errs = append(errs, end())
	}
	l.closes = nil
	return errors.Join(errs...)
}

// end ends all servers.
func (l *lab) end() error {
	for _, servers := range l.fleets {
		server.KillAll(servers)
	}
	return l.endStores()
}

// awaitTrust returns when railtoken trusts servers that have just started.
func (l *lab) awaitTrust(ctx context.Context, s *site) (err error) {
	locks, err := Plain.Open(s.addrs[OnRedis])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	l.env.Report("railtoken must trust the servers, which takes %v after their start", TTL)
	ctx, cancel := context.WithTimeout(ctx, 2*TTL)
	defer cancel()
	return process.Poll(ctx, nil, func() error { return locks.Try(ctx, "trust", func() {}) })
}
