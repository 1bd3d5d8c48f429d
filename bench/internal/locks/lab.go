package locks

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/distance"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// oneWay is how long bytes take to a server that is far away, and back again.
const oneWay = time.Millisecond

// site is where contestants find their servers: as many redis-servers as members of etcd.
type site struct {
	redis []*server.Server
	etcd  *server.Etcd
	// Where clients connect: proxies when the servers are far away.
	redisAddrs, etcdAddrs []string
}

// addrs are the addresses for a contestant.
func (s *site) addrs(kind contestant.Kind) []string {
	if kind.Store == contestant.OnEtcd {
		return s.etcdAddrs
	}
	return s.redisAddrs
}

// lab runs all servers.
type lab struct {
	dir string
	say func(format string, args ...any)

	single []*server.Server
	fives  [3][]*server.Server // by failure
	aged   bool                // the fives are old enough
	sites  map[place]*site
	// Of the clusters and the proxies that run now.
	etcds   []*server.Etcd
	proxies []*distance.Proxy

	etcdVersion, etcdPlace string
}

// failure is what happens to a server of a site.
type failure int

const (
	none failure = iota
	paused
	killed
)

// place names a site.
type place struct {
	servers int
	far     bool
	broken  failure
}

// startFives starts the servers of all sites with five, unless they run.
func (l *lab) startFives(ctx context.Context) (err error) {
	for i := range l.fives {
		if l.fives[i] == nil {
			if l.fives[i], err = fleet(ctx, l.dir, 5); err != nil {
				return err
			}
		}
	}
	return nil
}

// site returns a site, whose etcd runs until endEtcd.
func (l *lab) site(ctx context.Context, at place) (*site, error) {
	if s := l.sites[at]; s != nil {
		return s, nil
	}
	s := &site{}
	var err error
	if at.servers == 1 {
		if l.single == nil {
			if l.single, err = fleet(ctx, l.dir, 1); err != nil {
				return nil, err
			}
		}
		s.redis = l.single
	} else {
		if err := l.startFives(ctx); err != nil {
			return nil, err
		}
		s.redis = l.fives[at.broken]
	}
	var reach server.Reach
	if at.far {
		reach = l.far
	}
	if s.etcd, err = server.StartEtcd(ctx, l.dir, at.servers, reach); err != nil {
		return nil, err
	}
	l.etcds = append(l.etcds, s.etcd)
	if err := l.note(ctx, s.etcd); err != nil {
		return nil, err
	}
	s.redisAddrs, s.etcdAddrs = addrs(s.redis), s.etcd.Addrs()
	if at.far {
		for _, list := range []*[]string{&s.redisAddrs, &s.etcdAddrs} {
			if *list, err = l.allFar(ctx, *list); err != nil {
				return nil, err
			}
		}
	}
	if l.sites == nil {
		l.sites = map[place]*site{}
	}
	l.sites[at] = s
	return s, nil
}

// note keeps what the report says of etcd.
func (l *lab) note(ctx context.Context, e *server.Etcd) (err error) {
	l.etcdPlace = "on disk"
	if e.InMemory() {
		l.etcdPlace = "in memory"
	}
	l.etcdVersion, err = e.Version(ctx)
	return err
}

func (l *lab) far(ctx context.Context, addr string) (string, error) {
	p, err := distance.Listen(ctx, addr, oneWay)
	if err != nil {
		return "", err
	}
	l.proxies = append(l.proxies, p)
	return p.Addr(), nil
}

func (l *lab) allFar(ctx context.Context, addrs []string) (far []string, err error) {
	far = make([]string, len(addrs))
	for i, addr := range addrs {
		if far[i], err = l.far(ctx, addr); err != nil {
			return nil, err
		}
	}
	return far, nil
}

// endEtcd ends all clusters and proxies.
func (l *lab) endEtcd() error {
	var errs []error
	for _, e := range l.etcds {
		errs = append(errs, e.End())
	}
	for _, p := range l.proxies {
		errs = append(errs, p.Close())
	}
	l.etcds, l.proxies, l.sites = nil, nil, nil
	return errors.Join(errs...)
}

// end ends all servers.
func (l *lab) end() error {
	err := l.endEtcd()
	kill(l.single)
	for _, servers := range l.fives {
		kill(servers)
	}
	return err
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
	if want > 0 {
		want += 2 * time.Second // the server counts whole seconds
	}
	for _, servers := range l.fives {
		for _, s := range servers {
			if err := l.awaitAgeOf(ctx, s, want); err != nil {
				return err
			}
		}
	}
	l.aged = true
	return nil
}

func (l *lab) awaitAgeOf(ctx context.Context, s *server.Server, want time.Duration) error {
	for {
		age, err := s.Age(ctx)
		if err != nil {
			return err
		}
		if age >= want {
			return nil
		}
		l.say("the servers are to be %v old: %v more", want, want-age)
		select {
		case <-time.After(want - age):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fleet starts n servers.
func fleet(ctx context.Context, dir string, n int) (servers []*server.Server, err error) {
	for range n {
		s, err := server.Start(ctx, dir)
		if err != nil {
			kill(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func addrs(servers []*server.Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.Addr()
	}
	return all
}

func kill(servers []*server.Server) {
	for _, s := range servers {
		s.Kill()
	}
}
