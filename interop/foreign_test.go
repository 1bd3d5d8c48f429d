package interop_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// foreign takes locks as the users of another implementation do.
type foreign interface {
	// lock makes one attempt. The error matches errTaken when somebody has the lock.
	lock(ctx context.Context, name string, ttl time.Duration) (foreignLock, error)
}

// foreignLock is a lock that another implementation believes to have.
type foreignLock interface {
	// unlock gives the lock back and reports whether it was still this holder's.
	unlock(ctx context.Context) (bool, error)
	// extend makes the lock last for its TTL from now and reports whether it was still this holder's.
	extend(ctx context.Context) (bool, error)
}

var errTaken = errors.New("taken")

// program is another implementation.
type program struct {
	name    string
	oneNode bool // it does not know the algorithm for several nodes
	open    func(t *testing.T, servers []*redistest.Server) foreign
}

var programs = []program{
	{"redsync", false, openRedsync},
	{"redislock", true, openRedislock},
	{"npm redlock", false, openNode},
}

// impatient makes a client give up when its context says so, and at the first failure.
func impatient(o *redis.Options) {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
}

// lockName is the name that we and the others agree on. It has no hash tag: few programs use one.
func lockName(key string) string { return "lock:" + key }

// meeting is one key, on which both are to meet.
type meeting struct {
	*testing.T
	us        locking.Locker
	them      foreign
	nodes     []*redis.Client // that run
	key, name string
}

// TestWeAndOthersExcludeEachOther runs every scenario for every backend and every program that knows as many nodes.
func TestWeAndOthersExcludeEachOther(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, b backend, servers []*redistest.Server) {
		for _, p := range programs {
			if p.oneNode && b.nodes > 1 {
				continue // TestRedislockCountsForTheNodesThatItIsOn
			}
			t.Run(p.name, func(t *testing.T) { meet(t, b, p, servers) })
		}
	})
}

var scenarios = []struct {
	name string
	run  func(*meeting)
}{
	{"TheyExcludeUs", theyExcludeUs},
	{"WeExcludeThem", weExcludeThem},
	{"WeFollowAfterTheirExpiry", weFollowAfterTheirExpiry},
	{"TheyFollowAfterOurExpiry", theyFollowAfterOurExpiry},
	{"TheyTakeWhatAnOperatorDeleted", theyTakeWhatAnOperatorDeleted},
	{"OneHolderAtATime", oneHolderAtATime},
}

func meet(t *testing.T, b backend, p program, servers []*redistest.Server) {
	us, them := b.open(t, servers, lockName), p.open(t, servers)
	var nodes []*redis.Client
	for _, s := range servers {
		if s.PID() != 0 {
			nodes = append(nodes, s.Client(t, impatient))
		}
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			key := strings.ReplaceAll(p.name, " ", "-") + ":" + s.name
			s.run(&meeting{T: t, us: us, them: them, nodes: nodes, key: key, name: lockName(key)})
		})
	}
}

func theyExcludeUs(m *meeting) {
	const ttl = 20 * time.Second
	lock := m.theyLock(ttl)
	before := m.values()
	held := refused(m.T, m.us, m.key)
	if held.Key != m.key {
		m.Errorf("the refusal names key %q, want %q", held.Key, m.key)
	}
	if h := held.Holder; h.Label != "" || !h.Since.IsZero() || h.Fence != 0 || h.Remaining <= 0 || h.Remaining > ttl {
		m.Errorf("the refusal tells of %+v, want another program with more than 0 and at most %v left", h, ttl)
	}
	if text := held.Error(); !strings.Contains(text, m.key) || !strings.Contains(text, "another program") {
		m.Errorf("the refusal says %q, want the key and another program", text)
	}
	if after := m.values(); !slices.Equal(after, before) {
		m.Errorf("our refused attempt made %q of %q", after, before)
	}
	m.must("extend", true, lock.extend)
	m.must("unlock", true, lock.unlock)
	release(m.T, acquire(m.T, m.us, m.key, locking.Options{}))
}

func weExcludeThem(m *meeting) {
	lease := acquire(m.T, m.us, m.key, locking.Options{Label: "us"})
	first := fence(m.T, lease)
	before := m.values()
	m.theyAreRefused()
	m.keeps(before, "their refused attempt")
	if held := refused(m.T, m.us, m.key); held.Holder.Label != "us" {
		m.Errorf("beside them the refusal tells of %+v, want our own label", held.Holder)
	}
	if err := lease.Renew(m.Context()); err != nil {
		m.Errorf("renew: %v", err)
	}
	release(m.T, lease)
	lock := m.theyLock(20 * time.Second)
	m.must("unlock", true, lock.unlock)

	again := acquire(m.T, m.us, m.key, locking.Options{})
	if second := fence(m.T, again); second <= first {
		m.Errorf("token %d follows %d over their lock between", second, first)
	}
	release(m.T, again)
}

func weFollowAfterTheirExpiry(m *meeting) {
	late := m.theyLock(time.Second)
	refused(m.T, m.us, m.key)
	lease := eventually(m.T, m.us, m.key)
	before := m.values()
	m.must("extend, too late,", false, late.extend)
	m.must("unlock, too late,", false, late.unlock)
	m.keeps(before, "they were late and")
	m.theyAreRefused()
	if err := lease.Renew(m.Context()); err != nil {
		m.Errorf("renew: %v", err)
	}
	release(m.T, lease)
}

func theyFollowAfterOurExpiry(m *meeting) {
	lease := acquire(m.T, m.us, m.key, locking.Options{TTL: time.Second, MaxHold: time.Second})
	lock := m.theyEventuallyLock(20 * time.Second)
	if err := lease.Err(); !errors.Is(err, locking.ErrLost) {
		m.Errorf("they have the lock and our lease says %v, want ErrLost", err)
	}
	m.weAreLate(lease, lock)
}

func theyTakeWhatAnOperatorDeleted(m *meeting) {
	lease := acquire(m.T, m.us, m.key, locking.Options{})
	for _, node := range m.nodes {
		if err := node.Del(m.Context(), m.name).Err(); err != nil {
			m.Fatal(err)
		}
	}
	lock := m.theyLock(20 * time.Second)
	if err := lease.Renew(m.Context()); !errors.Is(err, locking.ErrLost) {
		m.Errorf("renew: %v, want ErrLost", err)
	}
	m.weAreLate(lease, lock)
}

// weAreLate releases a lease of ours that is over while they have the lock.
func (m *meeting) weAreLate(lease *locking.Lease, lock foreignLock) {
	m.Helper()
	before := m.values()
	if err := lease.Release(m.Context()); !errors.Is(err, locking.ErrLost) {
		m.Errorf("release, too late: %v, want ErrLost", err)
	}
	m.keeps(before, "we were late and")
	refused(m.T, m.us, m.key)
	m.must("extend", true, lock.extend)
	m.must("unlock", true, lock.unlock)
	release(m.T, acquire(m.T, m.us, m.key, locking.Options{}))
}

func oneHolderAtATime(m *meeting) {
	const each, rounds = 3, 10
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	var inside, last, turns atomic.Int64
	work := func() {
		if n := inside.Add(1); n != 1 {
			m.Errorf("%d holders at a time", n)
		}
		_ = pause(ctx)
		inside.Add(-1)
		turns.Add(1)
	}
	ours := func() error {
		lease, err := await(ctx, m.us, m.key, locking.Options{})
		if err != nil {
			return err
		}
		token, err := lease.Fence(ctx)
		if before := last.Swap(token); err == nil && token <= before {
			m.Errorf("token %d follows %d", token, before)
		}
		work()
		return errors.Join(err, lease.Release(ctx))
	}
	theirs := func() error {
		lock, err := m.awaitThem(ctx, 20*time.Second)
		if err != nil {
			return err
		}
		work()
		if ok, err := lock.unlock(ctx); !ok || err != nil {
			m.Errorf("they unlocked: %v, %v", ok, err)
		}
		return nil
	}
	var wg sync.WaitGroup
	for _, turn := range []func() error{ours, theirs} {
		for range each {
			wg.Go(func() {
				for range rounds {
					if err := turn(); err != nil {
						m.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n := turns.Load(); n != 2*each*rounds {
		m.Errorf("%d turns, want %d", n, 2*each*rounds)
	}
}

// values returns what each node that runs has for the lock, "" for nothing.
func (m *meeting) values() []string {
	m.Helper()
	values := make([]string, len(m.nodes))
	for i, node := range m.nodes {
		value, err := node.Get(m.Context(), m.name).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			m.Fatal(err)
		}
		values[i] = value
	}
	return values
}

// keeps checks that the holder of the lock still has it on each node that it had before. Outside of its majority a node may
// change: an attempt that came too late there is taken back.
func (m *meeting) keeps(before []string, who string) {
	m.Helper()
	holder, after := mode(before), m.values()
	for i, value := range before {
		if value == holder && after[i] != holder {
			m.Errorf("%s made %q of %q", who, after, before)
			return
		}
	}
}

// mode returns the value that most nodes have.
func mode(values []string) string {
	count := map[string]int{}
	for _, value := range values {
		count[value]++
	}
	return slices.MaxFunc(values, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
}

// theyLock makes them take a lock that is free.
func (m *meeting) theyLock(ttl time.Duration) foreignLock {
	m.Helper()
	lock, err := m.them.lock(m.Context(), m.name, ttl)
	if err != nil {
		m.Fatalf("they lock a free key: %v", err)
	}
	return lock
}

func (m *meeting) theyAreRefused() {
	m.Helper()
	if _, err := m.them.lock(m.Context(), m.name, 20*time.Second); !errors.Is(err, errTaken) {
		m.Fatalf("they lock a key of ours: %v, want a refusal", err)
	}
}

// theyEventuallyLock makes them take a lock that becomes free within patience.
func (m *meeting) theyEventuallyLock(ttl time.Duration) foreignLock {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	lock, err := m.awaitThem(ctx, ttl)
	if err != nil {
		m.Fatalf("they lock: %v", err)
	}
	return lock
}

func (m *meeting) awaitThem(ctx context.Context, ttl time.Duration) (foreignLock, error) {
	for {
		lock, err := m.them.lock(ctx, m.name, ttl)
		if !errors.Is(err, errTaken) {
			return lock, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// must checks what a holder of theirs is told.
func (m *meeting) must(what string, want bool, do func(context.Context) (bool, error)) {
	m.Helper()
	if ok, err := do(m.Context()); ok != want || err != nil {
		m.Errorf("they %s: %v, %v; want %v", what, ok, err, want)
	}
}
