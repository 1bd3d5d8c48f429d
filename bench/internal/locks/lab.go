package locks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/distance"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/etcdtest"
)

// oneWay is how long bytes take to a server that is far away, and back again.
const oneWay = time.Millisecond

// place names a site.
type place struct {
	servers     int
	far, broken bool
}

// site is where contestants find their servers: as many redis-servers as members of etcd.
type site struct {
	redis fleet
	etcd  *etcdtest.Cluster
	// Where clients connect: proxies when the servers are far away.
	redisAddrs, etcdAddrs []string
}

type fleet = []*server.Server

// addrs are the addresses for a contestant.
func (s *site) addrs(kind contestant.Kind) []string {
	if kind.Store == contestant.OnEtcd {
		return s.etcdAddrs
	}
	return s.redisAddrs
}

// lab runs all servers.
type lab struct {
	env    *measure.Env
	fleets map[place]fleet
	aged   bool // the fives are old enough
	sites  map[place]*site
	closes []func() error // of the clusters of etcd and the proxies that run now
}

// fleet returns the redis-servers of a place, which are the same near and far.
func (l *lab) fleet(ctx context.Context, at place) (fleet, error) {
	at.far = false
	if l.fleets[at] != nil {
		return l.fleets[at], nil
	}
	var err error
	l.fleets[at], err = server.StartAll(ctx, l.env.Dir, at.servers)
	return l.fleets[at], err
}

// startFives starts five servers, and five to be broken, unless they run.
func (l *lab) startFives(ctx context.Context, broken bool) error {
	_, err := l.fleet(ctx, place{servers: 5})
	if err == nil && broken {
		_, err = l.fleet(ctx, place{servers: 5, broken: true})
	}
	return err
}

// site returns a site, whose etcd runs until endEtcd.
func (l *lab) site(ctx context.Context, at place) (*site, error) {
	if s := l.sites[at]; s != nil {
		return s, nil
	}
	s := &site{}
	var err error
	if s.redis, err = l.fleet(ctx, at); err != nil {
		return nil, err
	}
	reach := func(_ context.Context, addr string) (string, error) { return addr, nil }
	if at.far {
		reach = l.far
	}
	if s.etcd, err = etcdtest.Start(ctx, l.env.Dir, etcdtest.Options{Members: at.servers, Reach: reach}); err != nil {
		return nil, err
	}
	l.closes = append(l.closes, s.etcd.End)
	if err := l.note(ctx, s.etcd); err != nil {
		return nil, err
	}
	if s.redisAddrs, err = reachAll(ctx, server.Addrs(s.redis), reach); err != nil {
		return nil, err
	}
	if s.etcdAddrs, err = reachAll(ctx, s.etcd.Addrs(), reach); err != nil {
		return nil, err
	}
	l.sites[at] = s
	return s, nil
}

// note adds the version of etcd to the setting.
func (l *lab) note(ctx context.Context, e *etcdtest.Cluster) error {
	version, err := e.Version(ctx)
	text := "etcd " + version + " (data on disk)"
	if e.InMemory() {
		text = "etcd " + version + " (data in memory)"
	}
	if versions := &l.env.Results.Setting.Versions; err == nil && !slices.Contains(*versions, text) {
		*versions = append(*versions, text)
	}
	return err
}

func (l *lab) far(ctx context.Context, addr string) (string, error) {
	p, err := distance.Listen(ctx, addr, oneWay)
	if err != nil {
		return "", err
	}
	l.closes = append(l.closes, p.Close)
	return p.Addr(), nil
}

func reachAll(ctx context.Context, addrs []string, reach etcdtest.Reach) ([]string, error) {
	reached := make([]string, len(addrs))
	for i, addr := range addrs {
		var err error
		if reached[i], err = reach(ctx, addr); err != nil {
			return nil, err
		}
	}
	return reached, nil
}

// endEtcd ends all clusters and proxies.
func (l *lab) endEtcd() error {
	var errs []error
	for _, end := range l.closes {
		errs = append(errs, end())
	}
	l.closes = nil
	clear(l.sites)
	return errors.Join(errs...)
}

// end ends all servers.
func (l *lab) end() error {
	for _, servers := range l.fleets {
		server.KillAll(servers)
	}
	return l.endEtcd()
}

// awaitAge returns when the servers are as old as the contestants want them.
func (l *lab) awaitAge(ctx context.Context) error {
	if l.aged { // a server that was killed meanwhile does not answer
		return nil
	}
	var want time.Duration
	for _, kind := range contestant.FiveNodes {
		want = max(want, kind.Aged)
	}
	for at, servers := range l.fleets {
		if at.servers == 1 {
			continue
		}
		if err := server.AwaitAge(ctx, servers, want, l.env.Report); err != nil {
			return err
		}
	}
	l.aged = true
	return nil
}
