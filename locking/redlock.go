package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/locking/internal/guard"
	"github.com/railtoken/railtoken/locking/internal/node"
	"github.com/railtoken/railtoken/locking/internal/quorum"
)

// Defaults of [RedlockOptions].
const (
	DefaultNodeTimeout = 50 * time.Millisecond
	DefaultMaxTTL      = 55 * time.Second
	dialTimeout        = time.Second
)

// splitAttempts is how often an attempt is made, with a short pause between, when several contenders have a part of the nodes each.
const splitAttempts = 4

// splitRemaining is how long the key is said to be held when nobody may hold it.
const splitRemaining = 100 * time.Millisecond

// GuardMode says how a [Redlock] keeps a server from voting that may have forgotten locks which are still held, because it has
// restarted, or was promoted after a failover, within the last MaxTTL. Such a server would let a second holder in.
//
// So servers that have just been started do not vote for MaxTTL, 55 s by default: until a majority does, attempts fail with
// [ErrUnavailable] and the reason, which matches [ErrQuarantined]. In tests use GuardOff.
//
// A Locker that saw a server's process change counts MaxTTL by its own monotonic clock. A server that it sees for the first time is
// as old as it says, by its wall clock: start servers after their clocks are synchronized, and slew clocks instead of stepping them.
type GuardMode int

// The modes of the guard.
const (
	// GuardConnect looks at each server when a connection to it is made, since a restart always breaks connections. It
	// costs nothing per lock. It is for masters that are connected to directly and have no failover: one that is made a replica and a
	// master again (REPLICAOF) keeps its connections, which only GuardStrict sees.
	GuardConnect GuardMode = iota
	// GuardStrict looks at the server in every acquisition besides, inside the script. It is for servers behind a proxy
	// that keeps connections while it changes the server. It costs 7 to 9 us of the server's time per acquisition (BenchmarkStrict).
	GuardStrict
	// GuardOff lets every server vote at once: for tests, development, and servers that keep every write through a restart
	// (appendfsync always, no failover). Of two entries that lead to the same server only one votes all the same.
	GuardOff
)

// RedlockOptions configures a [Redlock]. The zero value has every default.
type RedlockOptions struct {
	// Label names this process to those who are refused, when an attempt gives no label of its own. [DefaultLabel] when empty.
	Label string

	// FenceTTL is how long a key's fence counters outlive its last lease. It must be longer than MaxHold of every attempt;
	// 1 h when zero. After it a new counter begins at the clock of the next client, so tokens still grow as long as the
	// clocks of all clients agree within FenceTTL.
	FenceTTL time.Duration

	// KeyName returns the full name of the Redis string that is the lock of a business key: see [SingleOptions].
	KeyName func(key string) string

	// NodeTimeout is how long one node has for its answer, from when a call is sent to it. A node that needs longer, or is dead, does not
	// keep an attempt waiting whose outcome is certain without it. 50 ms when zero; it must be far below the TTL. Where the answers of a node
	// usually take long, as on a busy machine, it gets up to ten times that. A renewal has a third of its TTL. A first connection takes several round
	// trips, so from far away the first attempts may fail with ErrUnavailable until it is made.
	//
	// While more callers ask than the nodes can serve, calls queue up in this process: releases first, then renewals, then attempts. Attempts have
	// a quarter of each round trip at least, unless a lease has not been renewed for five twelfths of its TTL. An attempt waits for its turn for a quarter
	// of its TTL at most, then it fails with ErrUnavailable; what it has not sent then is never sent.
	NodeTimeout time.Duration

	// MaxTTL is the longest TTL that any client of these nodes uses, and so how long a server that has restarted is kept
	// from voting: give all clients the same. Attempts with a longer TTL are refused. At least 1 s, at most FenceTTL; 55 s when zero.
	MaxTTL time.Duration

	// Guard is GuardConnect when zero.
	Guard GuardMode
}

// withDefaults returns the options with every zero replaced by its default.
func (o RedlockOptions) withDefaults() RedlockOptions {
	o.Label = cleanLabel(o.Label)
	if o.Label == "" {
		o.Label = cleanLabel(DefaultLabel())
	}
	if o.FenceTTL == 0 {
		o.FenceTTL = DefaultFenceTTL
	}
	if o.KeyName == nil {
		o.KeyName = lockName
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = DefaultNodeTimeout
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = min(DefaultMaxTTL, o.FenceTTL)
	}
	return o
}

// pipelineTimeout is how long a pipeline may take until its connection is given up. It is longer than NodeTimeout: when the connection of a
// late answer is closed, nobody knows what was granted.
func (o RedlockOptions) pipelineTimeout() time.Duration { return max(dialTimeout, o.NodeTimeout) }

// Validate returns every fault of the options at once, or nil.
func (o RedlockOptions) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.FenceTTL < MinTTL {
		errs = append(errs, fmt.Errorf("locking: FenceTTL is %v: it must be longer than MaxHold, and at least %v", o.FenceTTL, MinTTL))
	}
	if o.MaxTTL < MinTTL || o.MaxTTL > o.FenceTTL {
		errs = append(errs, fmt.Errorf("locking: MaxTTL is %v: it must be at least %v, and at most FenceTTL, %v", o.MaxTTL, MinTTL, o.FenceTTL))
	}
	if o.NodeTimeout < time.Millisecond || o.NodeTimeout > o.MaxTTL/4 {
		errs = append(errs, fmt.Errorf("locking: NodeTimeout is %v: it must be at least 1ms and far below the TTL, at most %v", o.NodeTimeout, o.MaxTTL/4))
	}
	if o.Guard < GuardConnect || o.Guard > GuardOff {
		errs = append(errs, fmt.Errorf("locking: Guard is %d: it must be GuardConnect, GuardStrict or GuardOff", o.Guard))
	}
	return errors.Join(errs...)
}

// Redlock is a [Locker] on several independent Redis masters: a key is held by whoever has it on more than half of them, so it
// outlives the loss of the others ("Distributed Locks with Redis"). Its fencing tokens grow strictly without consensus and, as a rule,
// without a further round trip: see the package.
//
// All nodes are asked at the same time, and an attempt is decided as soon as it is certain. The nodes must be masters that
// replicate nothing to each other; an odd number serves best. It needs Redis 6.2 or later.
//
// It is safe for use by many goroutines at the same time.
type Redlock struct {
	opts    RedlockOptions
	nodes   []*redlockNode
	acquire *node.Script
	clock   quorum.Clock

	insisting pending // grants that send releases again
	open      pending // grants with releases that have no answer
	blocking  pending // those of them whose key could stay locked, and attempts
	closing   atomic.Bool
}

// redlockNode is one of the servers.
type redlockNode struct {
	addr    string
	client  *redis.Client
	calls   *node.Node
	guard   *guard.Node
	notices *notices
}

// NewRedlock returns a Locker on the servers that nodes say how to connect to. It makes clients of its own from them, with a small
// pool each, no retries and NodeTimeout for every answer; Close ends them. No connection is made before the first attempt.
//
// The quorum is more than half of the nodes named here, however many of them are alive. A minority that is away, or may not vote, shows in no
// error: watch the servers. go-redis writes connections that fail to stderr; redis.SetLogger changes that.
func NewRedlock(nodes []*redis.Options, opts RedlockOptions) (*Redlock, error) {
	if err := errors.Join(opts.Validate(), validateNodes(nodes)); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	mode := map[GuardMode]guard.Mode{GuardConnect: guard.Connect, GuardStrict: guard.Strict, GuardOff: guard.Off}[opts.Guard]
	guards, err := guard.New(len(nodes), guard.Options{Mode: mode, MaxTTL: opts.MaxTTL})
	if err != nil {
		return nil, err
	}
	r := &Redlock{opts: opts, acquire: acquireScript}
	if opts.Guard == GuardStrict {
		r.acquire = strictAcquireScript
	}
	for i, o := range nodes {
		n := &redlockNode{addr: o.Addr, guard: guards.Node(i)}
		timeout := opts.pipelineTimeout()
		own := nodeOptions(*o, timeout)
		n.guard.Protect(&own)
		n.client = redis.NewClient(&own)
		n.calls = node.New(n.client, node.Options{
			Leaders: 1, // the patience is for one; a release waits for the answer to its acquisition
			Timeout: timeout, Patience: opts.NodeTimeout, Blocked: n.guard.Blocked,
		})
		n.notices = newNotices(n.client)
		r.nodes = append(r.nodes, n)
	}
	return r, nil
}

// strictAcquireScript looks at the server first: see [GuardStrict].
var strictAcquireScript = node.NewScript(guard.Script(
	"local other = other_server(table.remove(ARGV))\nif other then\n  return other\nend\n" + acquireSource)).ForNewcomers()

// validateNodes returns what is wrong with the list of nodes.
func validateNodes(nodes []*redis.Options) error {
	if len(nodes) < 3 {
		return fmt.Errorf("locking: %d nodes: Redlock needs at least 3 independent servers; for one use NewSingle", len(nodes))
	}
	seen := map[string]int{}
	var errs []error
	for i, o := range nodes {
		if o == nil {
			errs = append(errs, fmt.Errorf("locking: node %d has no options", i))
			continue
		}
		if o.Dialer == nil && (o.Addr == "" || strings.Contains(o.Addr, "://") || strings.Contains(o.Addr, "@")) {
			errs = append(errs, fmt.Errorf("locking: node %d has no usable Addr: give host:port alone, and user and password in fields of their own", i))
			continue
		}
		addr := o.Network + "/" + strings.ToLower(o.Addr)
		if j, ok := seen[addr]; ok && o.Dialer == nil {
			errs = append(errs, fmt.Errorf("locking: nodes %d and %d are the same server %q: name each once", j, i, o.Addr))
		}
		seen[addr] = i
	}
	return errors.Join(errs...)
}

// nodeOptions returns the options of the client that locks use on one node.
func nodeOptions(o redis.Options, timeout time.Duration) redis.Options {
	o.MaxRetries = -1 // a second sending could overtake what follows; the quorum makes up for a lost call
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = timeout, timeout
	if o.DialTimeout == 0 || o.DialTimeout > dialTimeout {
		o.DialTimeout = dialTimeout
	}
	o.DialerRetries, o.PoolTimeout = 1, dialTimeout
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 4, 0, 0, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// Close ends the watches and the connections. It waits for releases that have no answer, for 1.5 s or half a second beyond NodeTimeout, and for 5 s in
// all while there are so many that a key could stay locked. Leases that are held can no longer be released and end with their TTL.
func (r *Redlock) Close() error {
	r.closing.Store(true)
	patience := time.Now().Add(r.opts.pipelineTimeout() + cleanupTimeout/2)
	r.blocking.wait(releaseTimeout)
	r.open.wait(time.Until(patience))
	var settling sync.WaitGroup
	for _, n := range r.nodes {
		settling.Go(func() { n.calls.Settle(min(r.opts.NodeTimeout, time.Until(patience))) })
	}
	settling.Wait()
	errs := make([]error, len(r.nodes))
	for i, n := range r.nodes {
		errs[i] = errors.Join(n.notices.close(), n.client.Close())
	}
	return errors.Join(errs...)
}

// Acquire makes one attempt: see [Locker]. When several contenders get a part of the nodes each, so that nobody has the key, it
// tries again a few times within some milliseconds before it answers that the key is held.
//
// The lease is good at once. Its [Lease.Fence] may take a further round trip, when nodes had different counters.
func (r *Redlock) Acquire(ctx context.Context, names []string, opts Options) (*Lease, error) {
	names, opts, err := Prepare(names, opts)
	if err != nil {
		return nil, err
	}
	if err := notReentrant(ctx, r, names); err != nil {
		return nil, err
	}
	if err := opts.outlives(r.opts.FenceTTL); err != nil {
		return nil, err
	}
	if opts.TTL > r.opts.MaxTTL {
		return nil, fmt.Errorf("locking: TTL is %v, above MaxTTL, %v, for which a server that has restarted is kept from voting: lower TTL, or raise MaxTTL in every client of these nodes", opts.TTL, r.opts.MaxTTL)
	}
	if opts.Label = cleanLabel(opts.Label); opts.Label == "" {
		opts.Label = r.opts.Label
	}
	keys, err := redisKeys(names, r.opts.KeyName)
	if err != nil {
		return nil, err
	}
	r.blocking.add(math.MaxInt)
	defer r.blocking.done()
	var pause *backoff.ExponentialBackOff
	for attempt := 1; ; attempt++ {
		if r.closing.Load() {
			return nil, &OpError{Op: "acquire", Keys: names, Err: redis.ErrClosed}
		}
		if err := ctx.Err(); err != nil {
			return nil, &OpError{Op: "acquire", Keys: names, Err: err}
		}
		began := time.Now()
		lease, verdict, err := r.attempt(ctx, names, keys, opts)
		if verdict == quorum.Unreachable {
			calm(ctx, refusalPause-time.Since(began))
		}
		if verdict != quorum.Split {
			return lease, err
		}
		if held, ok := errors.AsType[*HeldError](err); ok && (held.Holder.Remaining > splitRemaining || held.Holder.Remaining < 0) {
			brief := *held
			brief.Holder.Remaining = splitRemaining // whoever has a part of the nodes gives it back within moments, or had no majority
			err = &brief
		}
		if attempt == splitAttempts {
			return nil, err
		}
		if pause == nil {
			pause = backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Millisecond), backoff.WithMultiplier(2),
				backoff.WithRandomizationFactor(0.9), backoff.WithMaxElapsedTime(0))
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
	}
}

// refusalPause is how long at least an attempt takes that is refused without asking the servers: else callers who try again at once would keep
// the machine so busy that the answer which ends the refusals is not read.
const refusalPause = 5 * time.Millisecond

// calm waits until a time is over or ctx ends.
func calm(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attempt asks every node once.
func (r *Redlock) attempt(ctx context.Context, names, keys []string, opts Options) (*Lease, quorum.Verdict, error) {
	began := Now()
	g := newRedlockGrant(r, names, keys, opts)
	verdict, err := g.acquire(ctx)
	if err != nil {
		g.abandon()
		return nil, verdict, err
	}
	lease, err := NewLease(g, names, opts, began)
	if err == nil && lease.age() >= r.opts.MaxTTL/2 {
		// The proposal is so old that a server which has lost its data meanwhile may since have given a larger token.
		_ = lease.Release(ctx)
		return nil, verdict, &LostError{Keys: names, Reason: LossExpired}
	}
	if err != nil {
		g.abandon()
		return nil, verdict, err
	}
	return lease, verdict, nil
}

// see keeps later proposals above counters of the nodes.
func (r *Redlock) see(counters ...int64) { see(&r.clock, counters, r.opts.FenceTTL) }

// noticeWindow is within which the notices of several nodes are taken for one release.
const noticeWindow = 2 * time.Millisecond

// Watch returns a watch on the release of any of the keys: see [Watcher]. It follows all nodes, so that some of them may be away; a
// notice comes when a quorum of them has told of a release, or shortly after the first one has.
func (r *Redlock) Watch(_ context.Context, names []string) (*Watch, error) {
	w, notify := newWatch()
	gather := &gathering{quorum: quorum.Of(len(r.nodes)), notify: notify}
	var drops []func()
	w.close = func() {
		for _, drop := range drops {
			drop()
		}
		gather.stop()
	}
	for _, n := range r.nodes {
		drop, err := n.notices.watch(channels(names, r.opts.KeyName), gather.add)
		if err != nil {
			w.Close()
			return nil, err
		}
		drops = append(drops, drop)
	}
	return w, nil
}

// gathering makes one notice of those of several nodes.
type gathering struct {
	quorum int
	notify func()

	mu     sync.Mutex
	count  int         // within the window
	window *time.Timer // not nil while a window is open
	ended  bool
}

// add takes in the notice of one node.
func (g *gathering) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if g.window == nil {
		g.window = time.AfterFunc(noticeWindow, g.shut)
	}
	g.count++
	if g.count == g.quorum {
		g.notify()
	}
}

// shut ends the window.
func (g *gathering) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended && g.count < g.quorum {
		g.notify()
	}
	g.count, g.window = 0, nil
}

// stop ends the gathering.
func (g *gathering) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.window != nil {
		g.window.Stop()
	}
}
