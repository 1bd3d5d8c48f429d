package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// wantNext checks that the next holder comes at once, with a token above the floor and above that of the holder before.
func (r *rig) wantNext(l locking.Locker, floor, before int64) *locking.Lease {
	r.Helper()
	next := r.acquire(l, "k")
	token, err := next.Fence(r.Context())
	if err != nil || token <= floor || floor <= before {
		r.Errorf("the holder had the token %d, the floor is %d, the next token %d, %v", before, floor, token, err)
	}
	return next
}

func TestAHolderThatTheGateHandedOffToIsDeposed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gate := locking.NewGate(r.locks(), locking.GateOptions{})
	follow(t, gate)
	first := r.acquire(gate, "k")
	before, err := first.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := r.owner("k")
	second, third := make(chan *locking.Lease, 1), make(chan *locking.Lease, 1)
	for _, to := range []chan *locking.Lease{second, third} {
		go func() {
			opts := locking.Options{TTL: 3 * time.Second, MaxHold: time.Minute}
			lease, err := locking.Wait(t.Context(), gate, []string{"k"}, opts)
			if err != nil {
				t.Error(err)
			}
			to <- lease
		}()
	}
	time.Sleep(100 * time.Millisecond) // both wait: if not, the test below says that nothing was handed off
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	var lease *locking.Lease
	var other chan *locking.Lease
	select {
	case lease = <-second:
		other = third
	case lease = <-third:
		other = second
	case <-time.After(limit):
		t.Fatal("the lease was not handed off")
	}
	token, err := lease.Fence(t.Context())
	if err != nil || token <= before || r.owner("k") != owner {
		t.Fatalf("the token %d follows %d, %v: it was not handed off", token, before, err)
	}
	floor, err := r.inspect.Depose(t.Context(), "k", by(owner))
	if err != nil || floor <= token {
		t.Fatalf("the floor is %d, the token %d, %v", floor, token, err)
	}
	r.wantDeposed(lease)
	_ = lease.Release(t.Context())
	select {
	case next := <-other:
		if got, err := next.Fence(t.Context()); err != nil || got <= floor {
			t.Errorf("the Gate hands off the token %d below the floor %d, %v", got, floor, err)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Fatal("the next caller of the Gate does not get the key")
	}
}

func TestAHolderOnAClusterIsDeposed(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, 3).Client(t)
	r := &rig{TB: t, inspect: newInspector(t, inspect.Options{Tasks: client})}
	l, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	follow(t, l)
	lease := r.acquire(l, "k")
	before, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	floor, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k")))
	if err != nil {
		t.Fatal(err)
	}
	r.wantDeposed(lease)
	r.wantNext(l, floor, before)
}

func TestAStrictGuardLetsTheMajorityDepose(t *testing.T) {
	t.Parallel()
	nodes, servers := redlockNodes(t, 3)
	opts := locking.RedlockOptions{Guard: locking.GuardStrict, MaxTTL: 3 * time.Second}
	tasks := redistest.Start(t).Client(t)
	r := &rig{TB: t, inspect: newInspector(t, inspect.Options{Tasks: tasks, Nodes: nodes, Redlock: opts})}
	l, err := locking.NewRedlock(nodes, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	follow(t, l)
	clients := make([]*redis.Client, len(servers))
	for i, s := range servers {
		clients[i] = s.Client(t)
	}
	var lease *locking.Lease
	r.eventually("all servers vote, and have the lock", func() bool {
		lease, err = l.Acquire(t.Context(), []string{"k"}, locking.Options{TTL: 3 * time.Second, MaxHold: time.Minute})
		if err != nil {
			return false
		}
		for _, c := range clients {
			if c.Exists(t.Context(), "railtoken:lock:{k}").Val() == 0 {
				_ = lease.Release(t.Context())
				return false
			}
		}
		return true
	})
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	before, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := r.owner("k")
	servers[0].Kill()
	servers[0].Restart(t) // it has forgotten the lock, and does not vote
	var floor int64
	r.eventually("the two that vote depose the holder", func() bool {
		floor, err = r.inspect.Depose(t.Context(), "k", by(owner))
		return err == nil
	})
	r.wantDeposed(lease)
	r.wantNext(l, floor, before)
}

// part is a rig with three lock servers, of which the last has no lock of the holder.
type part struct {
	*rig
	nodes  []*redis.Options
	holder *locking.Lease
	locks  *locking.Redlock
}

// unguarded has a time-out that a server keeps on a busy machine, too.
var unguarded = locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: time.Second}

// newPart returns a part whose holder does not renew its lease during the test.
func newPart(t *testing.T) *part {
	t.Helper()
	nodes, servers := redlockNodes(t, 3)
	p := &part{nodes: nodes}
	tasks := redistest.Start(t).Client(t)
	p.rig = &rig{TB: t, client: tasks, inspect: newInspector(t, inspect.Options{Tasks: tasks, Nodes: nodes, Redlock: unguarded})}
	var err error
	if p.locks, err = locking.NewRedlock(nodes, unguarded); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.locks.Close() })
	servers[2].Kill()
	p.holder, err = p.locks.Acquire(t.Context(), []string{"k"}, locking.Options{TTL: 50 * time.Second, MaxHold: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.holder.Release(context.Background()) })
	servers[2].Restart(t)
	return p
}

// reaching returns an Inspector that reaches only some of the lock servers.
func (p *part) reaching(which ...int) *inspect.Inspector {
	p.Helper()
	var nodes []*redis.Options
	for i, node := range p.nodes {
		o := *node
		if !slices.Contains(which, i) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") }
		}
		nodes = append(nodes, &o)
	}
	return newInspector(p.TB, inspect.Options{Tasks: p.client, Nodes: nodes, Redlock: unguarded})
}

func TestAFailedDeposeLetsNoOtherIn(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	before, err := p.holder.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := p.owner("k")
	if _, err := p.reaching(0).Depose(t.Context(), "k", by(owner)); err == nil || errors.Is(err, inspect.ErrChanged) {
		t.Fatalf("one of three servers: %v", err)
	}
	other, err := p.locks.Acquire(t.Context(), []string{"k"}, locking.Options{})
	if err == nil {
		_ = other.Release(t.Context())
		t.Fatalf("another has the key, and the lease of its holder ended with: %v", p.holder.Err())
	}
	floor, err := p.inspect.Depose(t.Context(), "k", by(owner))
	if err != nil {
		t.Fatalf("repeated: %v", err)
	}
	p.wantNext(p.locks, floor, before)
}

// The holder's acquire calls may still be under way to servers that have no lock of it, or another one's.
func TestDeposeRefusesLateCallsOnEveryServer(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(p *part, last *redis.Client, d inspect.Deposition) error{
		"free": func(*part, *redis.Client, inspect.Deposition) error { return nil },
		"another owner's": func(p *part, last *redis.Client, _ inspect.Deposition) error {
			return last.Set(p.Context(), "railtoken:lock:{k}", "another", time.Minute).Err()
		},
		"reached by the repetition": func(p *part, _ *redis.Client, d inspect.Deposition) error {
			refused := errors.New("the database is away")
			d.Floor = func(context.Context, int64) error { return refused }
			if _, err := p.reaching(0, 1).Depose(p.Context(), "k", d); !errors.Is(err, refused) {
				return fmt.Errorf("the first one: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPart(t)
			var clients []*redis.Client
			for _, node := range p.nodes {
				client := redis.NewClient(node)
				t.Cleanup(func() { client.Close() })
				clients = append(clients, client)
			}
			mark := clients[0].Get(t.Context(), "railtoken:lock:{k}").Val()[:16]
			d := by(p.owner("k"))
			if err := spoil(p, clients[2], d); err != nil {
				t.Fatal(err)
			}
			if _, err := p.inspect.Depose(t.Context(), "k", d); err != nil {
				t.Fatal(err)
			}
			for i, client := range clients { // Depose does not wait for the last server
				p.eventually(fmt.Sprintf("server %d refuses them", i), func() bool {
					return strings.Contains(client.Get(t.Context(), "railtoken:lock:{k}:fence").Val(), " "+mark+"@")
				})
			}
		})
	}
}

// dying dials connections that all break after so many writes, those of all servers together. If late is true, the last
// write still arrives.
type dying struct {
	left atomic.Int64
	late bool
}

func (d *dying) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &dyingConn{conn, d}, nil
}

type dyingConn struct {
	net.Conn
	*dying
}

func (c *dyingConn) Write(b []byte) (int, error) {
	left := c.left.Add(-1)
	if left >= 0 {
		return c.Conn.Write(b)
	}
	if c.late && left == -1 {
		_, _ = c.Conn.Write(b)
	}
	_ = c.Close()
	return 0, io.ErrUnexpectedEOF
}

func TestDeposeOnFiveStoppedAnywhereCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("reply lost %v", late), func(t *testing.T) {
			t.Parallel()
			nodes, _ := redlockNodes(t, 5)
			tasks := redistest.Start(t).Client(t)
			r := &rig{TB: t, client: tasks, inspect: newInspector(t, inspect.Options{Tasks: tasks, Nodes: nodes, Redlock: unguarded})}
			l, err := locking.NewRedlock(nodes, unguarded)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			follow(t, l)
			for writes := int64(0); writes < 400; writes += 13 {
				if r.stopOnFiveAfter(l, nodes, writes, late) {
					if writes < 10 {
						t.Errorf("it has made only %d writes", writes)
					}
					return
				}
			}
			t.Error("it is never done")
		})
	}
}

// stopOnFiveAfter deposes a holder by a process that loses all lock servers after some writes, repeats it, and reports
// whether the first one was done.
func (r *rig) stopOnFiveAfter(l *locking.Redlock, nodes []*redis.Options, writes int64, late bool) (done bool) {
	r.Helper()
	lease := r.acquire(l, "k")
	before, err := lease.Fence(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	owner := r.owner("k")
	d := &dying{late: late}
	d.left.Store(writes)
	var broken []*redis.Options
	for _, node := range nodes {
		o := *node
		o.Dialer, o.MaxRetries = d.dial, -1
		broken = append(broken, &o)
	}
	opts := inspect.Options{Tasks: r.client, Nodes: broken, Redlock: locking.RedlockOptions{Guard: locking.GuardOff}}
	first, err := inspect.New(opts)
	if err != nil {
		r.Fatal(err)
	}
	brief, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
	_, err = first.Depose(brief, "k", by(owner))
	cancel()
	done = err == nil
	floor, err := r.inspect.Depose(r.Context(), "k", by(owner))
	if err != nil && (!done || !errors.Is(err, inspect.ErrChanged)) {
		r.Errorf("after %d writes, repeated: %v", writes, err)
	}
	r.wantDeposed(lease)
	if err == nil {
		next := r.wantNext(l, floor, before)
		if err := next.Release(r.Context()); err != nil {
			r.Errorf("after %d writes: %v", writes, err)
		}
	}
	_ = lease.Release(r.Context())
	_ = first.Close()
	return done
}
