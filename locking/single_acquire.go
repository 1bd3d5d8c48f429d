package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Acquire makes one attempt: see [Locker]. An unanswered attempt is undone and repeated, as often as the client's
// MaxRetries allows.
func (s *Single) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, s, keys, opts)
	if err != nil {
		return nil, err
	}
	if err := opts.outlives(s.fenceTTL); err != nil {
		return nil, err
	}
	label := s.label
	if opts.Label != "" {
		label = lockwire.CleanLabel(opts.Label)
	}
	parts, err := s.parts(keys)
	if err != nil {
		return nil, err
	}
	if s.agreement != nil {
		if err := s.agreement.Reach(ctx); err != nil {
			if !errors.Is(err, lanes.ErrOther) {
				err = classify(ctx, err)
			}
			return nil, &OpError{Op: "acquire", Keys: keys, Err: err}
		}
	}
	if s.fitness != nil {
		if err := s.fitness.check(ctx); err != nil {
			return nil, &OpError{Op: "acquire", Keys: keys, Err: err}
		}
	}
	var pauses *backoff.ExponentialBackOff
	for retries := 0; ; retries++ {
		if s.pending.Closed() { // it could not be given back
			return nil, &OpError{Op: "acquire", Keys: keys, Err: redis.ErrClosed}
		}
		lease, undone, err := s.attempt(ctx, keys, parts, label, opts)
		if err == nil || !undone || retries == s.retries || !errors.Is(err, ErrUnavailable) {
			return lease, err
		}
		if pauses == nil {
			pauses = newRetryPauses()
		}
		if !sleep(ctx, pauses.NextBackOff(), nil) {
			return nil, err
		}
	}
}

// attempt asks for the keys once. After an error, undone reports whether nothing is left of the attempt.
func (s *Single) attempt(
	ctx context.Context, keys []string, parts []part, label string, opts Options,
) (lease *Lease, undone bool, err error) {
	began := s.suspension.now()
	owner := began.owner(label, opts.block)
	g := &singleGrant{single: s, owner: owner, block: opts.block, ttl: opts.TTL}
	for i := range parts {
		g.parts = parts[:i+1]
		if err := g.acquire(ctx, &parts[i], opts); err != nil {
			return nil, g.giveBack(ctx), err
		}
	}
	if lease, err = newLease(ctx, g, keys, opts, began); err != nil {
		return nil, g.giveBack(ctx), err
	}
	return lease, false, nil
}

// acquire takes one part and records its tokens.
func (g *singleGrant) acquire(ctx context.Context, p *part, opts Options) error {
	proposal := -g.single.clock.Last()
	p.acquire = acquireCommand(acquireScript, p.redisKeys, g.owner, g.single.fenceTTL, proposal, opts, false)
	reply, err := g.single.server.Run(ctx, new(pipeline.Call).Of(p.acquire, 0, nil))
	p.asked = outcomeOf(err)
	if err != nil {
		if rediswire.IsMoving(err) || rediswire.IsUnserved(err) {
			p.asked = unsent
		}
		return &OpError{Op: "acquire", Keys: p.keys, Err: classify(ctx, err)}
	}
	tops, held, value, err := parseAcquire(reply, p.keys)
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.keys, Err: err}
	}
	if held != nil {
		p.asked = unsent // a refused script changes nothing
		if err := reentry(ctx, held, value); err != nil {
			return err
		}
		return held
	}
	see(&g.single.clock, tops, g.single.fenceTTL)
	if g.tops == nil {
		g.tops = tops
	} else {
		g.tops = append(g.tops, tops...)
	}
	return nil
}

// classify makes err match ErrUnavailable if another attempt may succeed: unless the caller has ended this one, or the
// server has refused it for good. A timeout of the connection looks like one of the caller, so ctx decides which it is.
func classify(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		return err
	}
	if reply, ok := errors.AsType[redis.Error](err); ok && !rediswire.IsTransient(reply.Error()) {
		return foreign(err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, rediswire.WithRules(err))
}

// giveBack releases what a failed attempt may have taken, and reports whether nothing is left of it. Unanswered calls
// are repeated in the background. Other callers may have been refused because of the attempt.
func (g *singleGrant) giveBack(ctx context.Context) bool {
	var calls []*retry
	giveBack := func(d time.Duration, keys []string, call func(ctx context.Context) (releaseReply, error)) {
		calls = append(calls, repeat(g.single.pending, d, nil, false, call, func() { g.single.late.report(keys) }))
	}
	for i := range g.parts {
		p := &g.parts[i]
		switch p.asked {
		case unsent:
		case answered:
			giveBack(g.ttl, p.keys, func(ctx context.Context) (releaseReply, error) {
				reply, err := g.run(ctx, releaseCommand(&p.acquire, nil), p)
				if rediswire.IsMoving(err) {
					return g.single.releaseMoving(ctx, *p, g.owner)
				}
				return reply, err
			})
		case unknown:
			repeated := false
			giveBack(lateRetry, p.keys, func(ctx context.Context) (releaseReply, error) {
				reply, err := g.run(ctx, abandonCommand(&p.acquire, g.single.fenceTTL, false, repeated), p)
				repeated = repeated || outcomeOf(err) == unknown
				return reply, err
			})
		}
	}
	return settled(ctx, calls)
}

// run runs a command that releases a part.
func (g *singleGrant) run(ctx context.Context, c pipeline.Command, p *part) (releaseReply, error) {
	reply, err := g.single.server.Run(ctx, new(pipeline.Call).Of(c, 0, nil))
	if err != nil {
		return releaseReply{}, err
	}
	return parseRelease(reply, len(p.keys))
}
