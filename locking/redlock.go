package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/guard"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/locking/internal/node"
)

// splitAttempts is how often an attempt is made, with a short pause between, when several contenders have a part of the nodes each.
const splitAttempts = 4

// splitRemaining is how long the key is said to be held when nobody may hold it.
const splitRemaining = 100 * time.Millisecond

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
	pulse   pulse // of its leases

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
	keys, err := redisKeys(names, r.opts.RedisKey)
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
	began := r.pulse.now()
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
