package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking/internal/node"
)

// cleanupTimeout is how long an attempt that has failed waits until it is taken back.
const cleanupTimeout = time.Second

// singleGrant is one acquisition on a [Single].
type singleGrant struct {
	single *Single
	owner  string
	block  int
	ttl    time.Duration
	parts  []part
	tops   []int64 // the last token of each key's block
}

// acquire takes one part and notes its tokens.
func (g *singleGrant) acquire(ctx context.Context, p *part, opts Options) error {
	p.acquire = acquireCommand(acquireScript, p.redis, g.owner, g.single.fence, -g.single.clock.Last(), opts, false)
	reply, err := g.single.node.Run(ctx, new(node.Call).Of(p.acquire, 0, nil))
	p.asked = outcomeOf(err)
	if isMoving(err) || isUnrun(err) {
		p.asked = unsent
	}
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.names, Err: classify(ctx, err)}
	}
	tops, held, _, err := parseAcquire(reply, p.names)
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.names, Err: err}
	}
	if held != nil {
		p.asked = unsent // a refused script leaves nothing
		return held
	}
	see(&g.single.clock, tops, g.single.fence)
	if g.tops == nil {
		g.tops = tops
	} else {
		g.tops = append(g.tops, tops...)
	}
	return nil
}

// Block returns how many tokens in a row are reserved.
func (g *singleGrant) Block() int { return g.block }

// classify makes err match ErrUnavailable when trying again may help: not when the caller has ended the attempt, and not
// when the server has answered that it will not do this at all. A time-out of the connection looks like one of the caller's, so the
// caller's context decides which it is.
func classify(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		return err
	}
	if reply, ok := errors.AsType[redis.Error](err); ok && !isTransient(reply.Error()) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, withRules(err))
}

// takeBack releases what an attempt may have taken before it failed, and reports whether nothing is left of it. What has no answer soon is
// released in the background.
func (g *singleGrant) takeBack(ctx context.Context) bool {
	var calls []*retry
	for i := range g.parts {
		p := &g.parts[i]
		switch p.asked {
		case unsent:
		case answered:
			calls = append(calls, g.single.pending.again(g.ttl, nil, func(ctx context.Context) (any, error) {
				reply, err := g.single.node.Run(ctx, new(node.Call).Of(releaseCommand(&p.acquire, nil), 0, nil))
				if isMoving(err) {
					return g.releaseMoving(ctx, *p)
				}
				return reply, err
			}))
		case unknown:
			calls = append(calls, g.single.pending.again(lateRetry, nil, func(ctx context.Context) (any, error) {
				return g.single.node.Run(ctx, new(node.Call).Of(abandonCommand(&p.acquire, g.single.fence, false), 0, nil))
			}))
		}
	}
	return settled(ctx, calls)
}

// each calls f for every part, for all at the same time, so that a server that does not answer keeps no key on another one
// locked. It tells f the position of the part and that of its first key.
func (g *singleGrant) each(f func(i, first int, p part)) {
	if len(g.parts) == 1 {
		f(0, 0, g.parts[0])
		return
	}
	var wg sync.WaitGroup
	first := 0
	for i, p := range g.parts {
		at := first
		wg.Go(func() { f(i, at, p) })
		first += len(p.names)
	}
	wg.Wait()
}

// Fence returns the first token of the block that the acquire script has reserved.
func (g *singleGrant) Fence(_ context.Context, i int) (int64, error) {
	return g.tops[i] - int64(g.block) + 1, nil
}

// Renew extends every part.
func (g *singleGrant) Renew(ctx context.Context, ttl time.Duration) error {
	first := 0
	for _, p := range g.parts {
		args := []any{g.owner, ms(ttl), ms(g.single.fence)}
		for i := range p.names {
			args = append(args, g.tops[first+i])
		}
		first += len(p.names)
		reply, err := g.single.node.Run(ctx, node.NewCall(nil, renewScript, p.redis, args...))
		lost := 0
		if err == nil {
			lost, err = parseRenew(reply, len(p.names))
		}
		if isMoving(err) {
			lost, err = g.renewMoving(ctx, p, ttl)
		}
		if err != nil {
			return &OpError{Op: "renew", Keys: p.names, Err: err}
		}
		if lost > 0 {
			return &LostError{Keys: p.names[lost-1 : lost], Reason: LossTaken}
		}
	}
	return nil
}

// Release deletes what is still this owner's, in every part whatever the others answer.
func (g *singleGrant) Release(ctx context.Context) (contended bool, err error) {
	if len(g.parts) == 1 {
		return g.leave(ctx, g.parts[0], g.tops)
	}
	errs, waited := make([]error, len(g.parts)), make([]bool, len(g.parts))
	g.each(func(i, first int, p part) {
		waited[i], errs[i] = g.leave(ctx, p, g.tops[first:first+len(p.names)])
	})
	return slices.Contains(waited, true), errors.Join(errs...)
}

// leave releases one part.
func (g *singleGrant) leave(ctx context.Context, p part, tops []int64) (contended bool, err error) {
	reply, err := g.releasePart(ctx, p, tops)
	switch {
	case err != nil:
		return true, &OpError{Op: "release", Keys: p.names, Err: err}
	case reply.lost > 0:
		return reply.contended, &LostError{Keys: p.names[reply.lost-1 : reply.lost], Reason: LossTaken}
	default:
		return reply.contended, nil
	}
}

// releasePart releases one part. A call that has no answer is made again for as long as ctx lasts, and after that in the background until
// the locks have run out: a key that stays locked stops its users for a TTL.
func (g *singleGrant) releasePart(ctx context.Context, p part, tops []int64) (releaseReply, error) {
	command := releaseCommand(&p.acquire, tops)
	lone := true // the answer is to the only release that is executed
	release := func(ctx context.Context, send func(context.Context, *node.Call) (any, error)) (releaseReply, error) {
		answer, err := send(ctx, new(node.Call).Of(command, 0, nil))
		reply, err := releasedBy(answer, err, len(p.names))
		if isMoving(err) {
			reply, err = g.releaseMoving(ctx, p)
			lone = lone && err == nil // it may have released some of the keys
		}
		lone = lone && outcomeOf(err) != unknown
		return reply, err
	}
	reply, err := release(ctx, g.single.node.Finish)
	if err == nil || isOver(err) {
		return reply, err
	}
	r := g.single.pending.again(g.ttl, err, func(ctx context.Context) (any, error) {
		reply, err := release(ctx, g.single.node.Run)
		if err != nil {
			return nil, err
		}
		if !lone {
			reply.lost = 0
		}
		return reply, nil
	})
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	answer, err := r.outcome()
	if reply, ok := answer.(releaseReply); ok && err == nil {
		return reply, nil
	}
	if !isOver(err) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	return releaseReply{}, err
}

// releasedBy reads the outcome of a release call.
func releasedBy(reply any, err error, keys int) (releaseReply, error) {
	if err != nil {
		return releaseReply{}, err
	}
	return parseRelease(reply, keys)
}

func (g *singleGrant) isOf(l Locker) bool { return l == Locker(g.single) }
