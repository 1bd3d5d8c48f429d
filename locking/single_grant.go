package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// singleGrant is one acquisition on a [Single].
type singleGrant struct {
	single *Single
	owner  string
	block  int
	ttl    time.Duration
	parts  []part
	tops   []int64 // the last token of each key's block
}

// Block returns how many consecutive tokens are reserved.
func (g *singleGrant) Block() int { return g.block }

// Fence returns the first token of the block of the i-th key.
func (g *singleGrant) Fence(_ context.Context, i int) (int64, error) {
	return g.tops[i] - int64(g.block) + 1, nil
}

// Renew extends every part.
func (g *singleGrant) Renew(ctx context.Context, ttl time.Duration) error {
	tops := g.tops
	for _, p := range g.parts {
		args := []any{g.owner, ms(ttl), ms(g.single.fenceTTL)}
		for _, top := range tops[:len(p.keys)] {
			args = append(args, top)
		}
		tops = tops[len(p.keys):]
		reply, err := g.single.server.Run(ctx, pipeline.NewCall(nil, renewScript, p.redisKeys, args...))
		lost := 0
		if err == nil {
			lost, err = parseRenew(reply, len(p.keys))
		}
		if rediswire.IsMoving(err) {
			lost, err = g.single.renewMoving(ctx, p, g.owner, ttl)
		}
		if err != nil {
			return &OpError{Op: "renew", Keys: p.keys, Err: foreign(err)}
		}
		if lost > 0 {
			return g.lost(ctx, &p, lost)
		}
	}
	return nil
}

// Release releases all parts concurrently, so that a server that does not answer keeps no key of another one locked.
func (g *singleGrant) Release(ctx context.Context) (notify bool, err error) {
	if len(g.parts) == 1 {
		return g.releasePart(ctx, g.parts[0], g.tops)
	}
	errs, notifies := make([]error, len(g.parts)), make([]bool, len(g.parts))
	var all sync.WaitGroup
	tops := g.tops
	for i, p := range g.parts {
		own := tops[:len(p.keys)]
		all.Go(func() { notifies[i], errs[i] = g.releasePart(ctx, p, own) })
		tops = tops[len(p.keys):]
	}
	all.Wait()
	return slices.Contains(notifies, true), errors.Join(errs...)
}

// releasePart releases one part.
func (g *singleGrant) releasePart(ctx context.Context, p part, tops []int64) (notify bool, err error) {
	reply, err := g.sendRelease(ctx, p, tops)
	switch {
	case err != nil:
		return true, &OpError{Op: "release", Keys: p.keys, Err: foreign(err)}
	case reply.lost > 0:
		return reply.notify, &LostError{Keys: p.keys[reply.lost-1 : reply.lost], Reason: LossTaken}
	default:
		return reply.notify, nil
	}
}

// releaseCommand returns the call that releases a part. A grant that a script has got has made no call before.
func (g *singleGrant) releaseCommand(p *part, tops []int64) pipeline.Command {
	if !p.acquire.Empty() {
		return releaseCommand(&p.acquire, tops)
	}
	c := releaseScript.Command(p.redisKeys, 1+len(tops))
	c.Add(g.owner)
	for _, top := range tops {
		c.Add(top)
	}
	return c
}

// sendRelease releases one part. An unanswered call is repeated until the locks have expired, and sendRelease waits for
// that until ctx ends: a key that stays locked stops its users for a TTL.
func (g *singleGrant) sendRelease(ctx context.Context, p part, tops []int64) (releaseReply, error) {
	command := g.releaseCommand(&p, tops)
	answer, err := g.single.server.Finish(ctx, new(pipeline.Call).Of(command, 0, nil))
	reply, sure, err := g.readRelease(ctx, p, answer, err)
	if err == nil || isOver(err) {
		return reply, err
	}
	return g.repeatRelease(ctx, p, command, sure, err)
}

// readRelease reads the answer to a release of one part. sure says that it tells what the only release did that may have
// been executed.
func (g *singleGrant) readRelease(
	ctx context.Context, p part, answer any, failure error,
) (reply releaseReply, sure bool, err error) {
	if err = failure; err == nil {
		reply, err = parseRelease(answer, len(p.keys))
	}
	sure = true
	if rediswire.IsMoving(err) {
		reply, err = g.single.releaseMoving(ctx, p, g.owner)
		sure = err == nil // it may have released some of the keys
	}
	return reply, sure && outcomeOf(err) != unknown, err
}

// repeatRelease repeats a release that has failed. sure says that it has not been executed.
func (g *singleGrant) repeatRelease(
	ctx context.Context, p part, command pipeline.Command, sure bool, failure error,
) (releaseReply, error) {
	r := repeat(g.single.pending, g.ttl, failure, true, func(ctx context.Context) (releaseReply, error) {
		answer, err := g.single.server.Run(ctx, new(pipeline.Call).Of(command, 0, nil))
		reply, now, err := g.readRelease(ctx, p, answer, err)
		if sure = sure && now; err == nil && !sure {
			reply.lost = 0
		}
		return reply, err
	}, func() { g.single.late.report(p.keys) })
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	reply, err := r.leave()
	if err == nil {
		return reply, nil
	}
	if !isOver(err) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	return releaseReply{}, err
}

func (g *singleGrant) isOf(l Locker) bool { return l == Locker(g.single) }

func (g *singleGrant) hasOwner(value string) bool { return g.owner == value }

// lost returns the error of a part that is another owner's.
func (g *singleGrant) lost(ctx context.Context, p *part, position int) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	at := position - 1
	return lostError(p.keys[at:position], p.redisKeys[3*at:3*position], g.owner, nil, func(record string) string {
		return g.single.client.Get(ctx, record).Val()
	})
}

func (g *singleGrant) ownedBy(name string) bool { return lockwire.Name(g.owner) == name }
