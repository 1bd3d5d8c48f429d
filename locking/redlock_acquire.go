package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

const (
	// splitAttempts is how many attempts are made, with short pauses, while several callers each hold some of the nodes.
	splitAttempts = 4
	// splitRemaining is the longest Remaining in the refusal of such an attempt, after which no caller has the key.
	splitRemaining = 100 * time.Millisecond
	// refusalPause is the shortest duration of an attempt that fails without asking the servers. Otherwise callers that
	// try again at once would keep the machine too busy to read the answer that ends the failures.
	refusalPause = 5 * time.Millisecond
)

// Acquire makes one attempt: see [Locker]. When several callers each get some of the nodes, so that none has the key,
// Acquire tries again a few times within milliseconds before it reports the key as held.
//
// The lease is valid at once. [Lease.Fence] may take another round trip if the counters of the nodes differ.
func (r *Redlock) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, r, keys, opts)
	if err != nil {
		return nil, err
	}
	if err := opts.outlives(r.opts.FenceTTL); err != nil {
		return nil, err
	}
	if opts.TTL > r.opts.MaxTTL {
		return nil, fmt.Errorf("locking: TTL is %v, above MaxTTL, %v, "+
			"for which a server that has restarted is kept from voting: "+
			"lower TTL, or raise MaxTTL in every client of these nodes", opts.TTL, r.opts.MaxTTL)
	}
	if opts.Label = lockwire.CleanLabel(opts.Label); opts.Label == "" {
		opts.Label = r.opts.Label
	}
	redisKeys, err := lockwire.RedisKeys(keys, r.opts.RedisKey)
	if err != nil {
		return nil, err
	}
	r.blocking.add(math.MaxInt)
	defer r.blocking.done()
	var pauses *backoff.ExponentialBackOff
	for attempt := 1; ; attempt++ {
		if r.closing.Load() {
			return nil, &OpError{Op: "acquire", Keys: keys, Err: redis.ErrClosed}
		}
		if err := ctx.Err(); err != nil {
			return nil, &OpError{Op: "acquire", Keys: keys, Err: err}
		}
		began := time.Now()
		lease, verdict, err := r.attempt(ctx, keys, redisKeys, opts)
		if left := refusalPause - time.Since(began); verdict == quorum.Unreachable && left > 0 {
			sleep(ctx, left, nil)
		}
		if verdict != quorum.Split {
			return lease, err
		}
		held, ok := errors.AsType[*HeldError](err)
		if ok && (held.Holder.Remaining > splitRemaining || held.Holder.Remaining < 0) {
			brief := *held
			brief.Holder.Remaining = splitRemaining // callers without a majority give their nodes back
			err = &brief
		}
		if attempt == splitAttempts {
			return nil, err
		}
		if pauses == nil {
			pauses = growing(time.Millisecond, time.Second, 2, 0.9)
		}
		if !sleep(ctx, pauses.NextBackOff(), nil) {
			return nil, err
		}
	}
}

// attempt asks every node once.
func (r *Redlock) attempt(ctx context.Context, keys, redisKeys []string, opts Options) (*Lease, quorum.Verdict, error) {
	began := r.suspension.now()
	g := newRedlockGrant(r, keys, redisKeys, opts)
	verdict, err := g.acquire(ctx)
	if err != nil {
		g.abandon()
		return nil, verdict, err
	}
	lease, err := newLease(ctx, g, keys, opts, began)
	if err == nil && lease.age() >= r.opts.MaxTTL/2 {
		// The proposal is so old that a server that has lost its data since then may have given a larger token.
		_ = lease.Release(ctx)
		g.tell() // others were refused meanwhile
		return nil, verdict, &LostError{Keys: keys, Reason: LossExpired}
	}
	if err != nil {
		g.abandon()
		g.tell()
		return nil, verdict, err
	}
	return lease, verdict, nil
}

func newRedlockGrant(r *Redlock, keys, redisKeys []string, opts Options) *redlockGrant {
	g := &redlockGrant{
		redlock: r, owner: lockwire.NewOwner(opts.Label, opts.block, time.Now(), ""), keys: keys,
		redisKeys: redisKeys, opts: opts,
		rules: quorum.New(len(r.nodes)), nodes: make([]grantNode, len(r.nodes)),
		settled: make(chan struct{}), committed: make(chan struct{}), began: time.Now(), lasts: opts.TTL,
	}
	g.extended = g.began
	g.onAnswer, g.onLate, g.onRelease = g.handleAcquire, g.handleLate, g.handleRelease
	last := r.clock.Propose(time.Now().UnixMicro(), int64(opts.block))
	strict := r.opts.Guard == GuardStrict
	g.acquireCall = acquireCommand(r.acquire, redisKeys, g.owner, r.opts.FenceTTL, last, opts, strict)
	return g
}

// queueShare bounds how long an attempt may be queued: for 1/queueShare of its TTL, which includes the time in the
// queue.
const queueShare = 4

// acquire asks every node, and returns as soon as the outcome is certain. Each node has NodeTimeout once the call is
// sent to it, because a call that is queued in this process says nothing about the node. After an error, calls that are
// still queued are never sent.
func (g *redlockGrant) acquire(ctx context.Context) (quorum.Verdict, error) {
	g.mu.Lock()
	g.calls = make([]pipeline.Call, len(g.nodes))
	for i := range g.nodes {
		g.ask(i, &g.calls[i])
	}
	g.settle()
	g.mu.Unlock()

	timer := time.NewTimer(g.opts.TTL / queueShare)
	defer timer.Stop()
	select {
	case <-g.settled:
	case <-timer.C:
		g.giveUp(errOverload)
	case <-ctx.Done():
		g.giveUp(ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	verdict := g.rules.Verdict()
	if verdict == quorum.Won {
		g.commit()
		g.seekMissing()
		return verdict, nil
	}
	g.withdraw()
	switch {
	case ctx.Err() != nil:
		return quorum.Unreachable, &OpError{Op: "acquire", Keys: g.keys, Err: ctx.Err()}
	case verdict == quorum.Unreachable:
		return verdict, &OpError{Op: "acquire", Keys: g.keys, Err: g.failure()}
	default:
		if err := reentry(ctx, g.held, g.value); err != nil {
			return verdict, err
		}
		return verdict, g.held
	}
}

// handleAcquire records the answer of a node to the acquire call, however late.
func (g *redlockGrant) handleAcquire(c *pipeline.Call) {
	i := c.Node
	g.mu.Lock()
	defer g.mu.Unlock()
	tops, held, value, err := g.parse(c)
	switch {
	case errors.Is(err, errAskedAgain):
		return
	case err != nil:
		g.nodes[i].outcome = outcomeOf(err)
		g.nodes[i].doubtful = g.nodes[i].outcome == unknown
		g.fail(i, err)
	case held != nil:
		g.redlock.see(held.Holder.Fence + lockwire.ParseOwner(value).Block)
		if g.held == nil || outlasts(held.Holder.Remaining, g.held.Holder.Remaining) {
			g.held, g.value = held, value
		}
		g.nodes[i].answered = true
		g.rules.Held(i, value)
	default:
		g.redlock.see(tops...)
		g.nodes[i].answered = true
		g.rules.Granted(i, tops)
	}
	g.settle()
	if g.ended {
		g.releaseLate(i)
		return
	}
	if g.rules.Verdict() == quorum.Won {
		g.commit()
	}
}

// outlasts reports whether the remaining time a is longer than b. A negative time has no end.
func outlasts(a, b time.Duration) bool { return b >= 0 && (a < 0 || a > b) }
