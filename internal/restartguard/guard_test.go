package restartguard_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestOptionsTellEveryFault(t *testing.T) {
	t.Parallel()
	_, err := restartguard.New(3, restartguard.Options{Mode: 7, MaxTTL: -1, MaxSkew: -1})
	for _, part := range []string{"guard mode 7", "MaxTTL is -1ns", "MaxSkew is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
	if _, err := restartguard.New(0, restartguard.Options{MaxTTL: ttl}); err == nil {
		t.Error("a guard for no node is made")
	}
	if _, err := restartguard.New(1, restartguard.Options{}); err == nil {
		t.Error("a guard without MaxTTL is made")
	}
	if _, err := restartguard.New(1, restartguard.Options{Mode: restartguard.Off}); err != nil {
		t.Error(err)
	}
}

func TestTheDefaultSkewIsAQuarterOfMaxTTL(t *testing.T) {
	t.Parallel()
	now := time.Now()
	n := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0)
	ahead := func(d time.Duration) restartguard.Facts {
		return facts(now, ttl, func(f *restartguard.Facts) { f.Clock = f.Asked.Add(d) })
	}
	if err := n.Reject(ahead(ttl / 4)); err != nil {
		t.Error(err)
	}
	refusedFor(t, n.Reject(ahead(ttl/4+1)), restartguard.Skewed)
}

func TestYoungServerVotesAfterMaxTTL(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := redistest.Start(t)
	n, count := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0), new(dials)
	c := protected(t, s, n, count)
	refusal := refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
	if refusal.Addr != s.Addr() || !errors.Is(n.Blocked(), refusal) || n.Identity() != "" {
		t.Errorf("refusal of %s, blocked by %v, identity %q", refusal.Addr, n.Blocked(), n.Identity())
	}
	if after := accepted(t, n, c).Sub(began); after < maxTTL {
		t.Errorf("accepted %v after its start, want %v at least", after, maxTTL)
	}
	if id := n.Identity(); len(id) != 81 {
		t.Errorf("identity %q, want two ids", id)
	}
	if got := count.n.Load(); got != 2 {
		t.Errorf("%d dials, want 2", got)
	}
}

func TestRestartIsRefusedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0)
	c := protected(t, s, n, nil)
	accepted(t, n, c)
	before := n.Identity()
	s.Kill()
	began := time.Now()
	s.Restart(t)
	eventuallyRefused(t, c, restartguard.Young)
	if n.Identity() != "" {
		t.Error("a server that is refused keeps its identity")
	}
	if after := accepted(t, n, c).Sub(began); after < maxTTL {
		t.Errorf("accepted %v after its restart, want %v at least", after, maxTTL)
	}
	if n.Identity() == before {
		t.Error("the identity is the same after a restart")
	}
}

func TestServerThatIsDownIsUnreachable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	c := protected(t, s, n, nil)
	accepted(t, n, c)
	s.Kill()
	refusal := eventuallyRefused(t, c, restartguard.Unreachable)
	if _, ok := errors.AsType[*net.OpError](refusal); !ok {
		t.Errorf("refusal %v does not tell of the dial", refusal)
	}
}

func TestReplicaAndItsPromotionAreRefused(t *testing.T) {
	t.Parallel()
	other, s := redistest.Start(t), redistest.Start(t)
	n, admin := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0), s.Client(t)
	accepted(t, n, protected(t, s, n, nil))

	host, port, err := net.SplitHostPort(other.Addr())
	if err != nil {
		t.Fatal(err)
	}
	do(t, admin, "REPLICAOF", host, port)
	refusedFor(t, protected(t, s, n, nil).Ping(t.Context()).Err(), restartguard.NotMaster)

	do(t, admin, "REPLICAOF", "NO", "ONE")
	began, c := time.Now(), protected(t, s, n, nil)
	eventuallyRefused(t, c, restartguard.Promoted)
	if after := accepted(t, n, c).Sub(began); after < maxTTL {
		t.Errorf("accepted %v after its promotion, want %v at least", after, maxTTL)
	}
}

func TestOneServerHasOneVote(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, opts := range map[string]restartguard.Options{
		"connect": {MaxTTL: anyAge, MaxSkew: time.Minute},
		"off":     {Mode: restartguard.Off},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, 3, opts)
			accepted(t, g.Node(1), protected(t, s, g.Node(1), nil))
			refusal := refusedFor(t, protected(t, s, g.Node(2), nil).Ping(t.Context()).Err(), restartguard.Duplicate)
			if refusal.Node != 2 {
				t.Errorf("refusal of node %d, want 2", refusal.Node)
			}
			refusedFor(t, protected(t, s, g.Node(0), nil).Ping(t.Context()).Err(), restartguard.Duplicate)
			accepted(t, g.Node(1), protected(t, s, g.Node(1), nil)) // the first one keeps it
		})
	}
}

func TestServerThatEvictsIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	c := protected(t, s, n, nil)
	eventuallyRefused(t, c, restartguard.Evicting)
	do(t, s.Client(t), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	accepted(t, n, c)
}

func TestServerThatTellsNothingIsUnreadable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	do(t, s.Client(t), "ACL", "SETUSER", "lock", "on", ">secret", "~*", "+@all", "-info")
	mod := func(o *redis.Options) { o.Username, o.Password = "lock", "secret" }
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	c := protected(t, s, n, nil, mod)
	refusal := refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Unreadable)
	if _, ok := errors.AsType[redis.Error](refusal); !ok {
		t.Errorf("refusal %v does not tell what the server answered", refusal)
	}
	do(t, s.Client(t), "ACL", "SETUSER", "lock", "+info")
	accepted(t, n, c)

	do(t, s.Client(t), "ACL", "SETUSER", "lock", "-info")
	off := newGuard(t, 1, restartguard.Options{Mode: restartguard.Off}).Node(0)
	accepted(t, off, protected(t, s, off, nil, mod))
}

func TestOffWorksWithAFakeRedis(t *testing.T) {
	t.Parallel()
	m, _ := redistest.Virtual(t)
	g := newGuard(t, 2, restartguard.Options{Mode: restartguard.Off})
	for i := range 2 { // it does not say who it is, so it cannot be known twice
		c := redistest.VirtualClient(t, m, g.Node(i).Protect)
		if err := c.Set(t.Context(), "key", "value", 0).Err(); err != nil {
			t.Error(err)
		}
	}
	on := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0)
	refusedFor(t, redistest.VirtualClient(t, m, on.Protect).Ping(t.Context()).Err(), restartguard.Unreadable)
}

func TestHangingServerIsUnreachable(t *testing.T) {
	t.Parallel()
	for _, mode := range []restartguard.Mode{restartguard.Connect, restartguard.Off} {
		s := redistest.Start(t)
		n := newGuard(t, 1, restartguard.Options{Mode: mode, MaxTTL: ttl}).Node(0)
		o := &redis.Options{}
		n.Protect(o)
		c := s.Client(t, func(co *redis.Options) {
			co.ContextTimeoutEnabled, co.MaxRetries = true, -1
			co.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
				s.Pause() // between the handshake and the questions
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				err := o.OnConnect(ctx, cn)
				if err == nil {
					t.Error("a server that has not answered is accepted")
				}
				return err
			}
		})
		err := c.Ping(t.Context()).Err()
		s.Resume()
		if mode == restartguard.Off {
			if err == nil || errors.Is(err, restartguard.ErrRefused) || n.Blocked() != nil {
				t.Errorf("off: error %v, blocked %v; want the error of the connection", err, n.Blocked())
			}
			continue
		}
		refusedFor(t, err, restartguard.Unreachable)
	}
}

// A caller that gives up while the server is asked does not shut the others out.
func TestACancelledHandshakeRefusesNoOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n, o := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0), &redis.Options{}
	n.Protect(o)
	c := s.Client(t, func(co *redis.Options) {
		co.ContextTimeoutEnabled, co.MaxRetries = true, -1
		co.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			s.Pause()
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			given, giveUp := context.WithCancel(ctx)
			giveUp()
			err := o.OnConnect(given, cn)
			if err == nil {
				t.Error("a server that has not answered is accepted")
			}
			return err
		}
	})
	err := c.Ping(t.Context()).Err()
	s.Resume()
	if err == nil || errors.Is(err, restartguard.ErrRefused) || n.Blocked() != nil {
		t.Errorf("error %v, blocked %v; want the error of the connection", err, n.Blocked())
	}
}

func TestOnConnectOfTheUserIsCalled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0)
	var mu sync.Mutex
	calls, errUser := 0, errors.New("not today")
	c := protected(t, s, n, nil, func(o *redis.Options) {
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			if calls == 1 {
				return errUser
			}
			return cn.Ping(ctx).Err()
		}
	})
	refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
	if calls != 0 {
		t.Error("OnConnect was called for a server that is refused")
	}
	refusal := refusedFor(t, n.Blocked(), restartguard.Young)
	<-time.After(time.Until(refusal.Until)) // the quarantine is the event
	if err := c.Ping(t.Context()).Err(); !errors.Is(err, errUser) {
		t.Errorf("error %v, want that of the user's OnConnect", err)
	}
	if err := c.Ping(t.Context()).Err(); err != nil || calls != 2 {
		t.Errorf("error %v after %d calls, want none after 2", err, calls)
	}
}

// The dialer of go-redis is kept when the user has none.
func TestDefaultDialer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	accepted(t, n, s.Client(t, func(o *redis.Options) {
		o.MaxRetries = -1
		n.Protect(o)
		if o.DialTimeout != 5*time.Second {
			t.Errorf("the time limit for a dial is %v, want that of go-redis", o.DialTimeout)
		}
	}))
}

// A crowd that does not know of the quarantine yet dials once per pool slot at most, and again when it is over; never
// in between.
func TestQuarantineBoundsDials(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n, count := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL}).Node(0), new(dials)
	const slots = 10
	c := protected(t, s, n, count, func(o *redis.Options) { o.PoolSize = slots })
	var crowd sync.WaitGroup
	var refused atomic.Int64
	for range 200 {
		crowd.Go(func() {
			for began := time.Now(); time.Since(began) < patience; <-time.After(5 * time.Millisecond) {
				err := c.Ping(t.Context()).Err()
				if err == nil {
					return
				}
				if !errors.Is(err, restartguard.ErrRefused) {
					t.Errorf("error %v, want a refusal", err)
					return
				}
				refused.Add(1)
			}
			t.Error("the server is still refused")
		})
	}
	crowd.Wait()
	if got := count.n.Load(); got > 2*slots+1 {
		t.Errorf("%d dials, want %d before the quarantine, one probe and %d after it at most", got, slots, slots)
	}
	t.Logf("%d dials, %d calls refused", count.n.Load(), refused.Load())
}

// What a caller is told is the refusal itself, at once, with the retries of go-redis as they are by default, and the
// pool keeps neither a connection nor a bad memory.
func TestRefusalCostsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n, count := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0), new(dials)
	c := protected(t, s, n, count, func(o *redis.Options) { o.DialerRetries, o.PoolSize, o.MaxRetries = 0, 5, 0 })
	refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
	began := time.Now()
	const calls = 1000
	for range calls {
		refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Young)
	}
	took := time.Since(began) / calls
	if took > 20*time.Millisecond {
		t.Errorf("a refusal takes %v", took)
	}
	if stats := c.PoolStats(); stats.TotalConns != 0 || stats.Timeouts != 0 || count.n.Load() != 1 {
		t.Errorf("%d connections, %d timeouts, %d dials; want 0, 0, 1", stats.TotalConns, stats.Timeouts,
			count.n.Load())
	}
	t.Logf("a refusal takes %v", took)
}

func TestRefusalReachesTheCaller(t *testing.T) {
	t.Parallel()
	n := newGuard(t, 1, restartguard.Options{MaxTTL: ttl}).Node(0)
	c := redis.NewClient(&redis.Options{
		MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			o := &redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errDown }}
			n.Protect(o)
			return o.Dialer(t.Context(), "tcp", "node")
		},
	})
	defer c.Close()
	_, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error { return pipe.Ping(t.Context()).Err() })
	for _, err := range []error{err, c.Ping(t.Context()).Err()} {
		if refusal := refusedFor(t, err, restartguard.Unreachable); !errors.Is(refusal, errDown) {
			t.Errorf("refusal %v does not tell of %v", refusal, errDown)
		}
	}
}
