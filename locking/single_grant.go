package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking/internal/node"
)

// cleanupTimeout bounds the taking back of an attempt whose outcome is not known.
const cleanupTimeout = time.Second

// singleGrant is one acquisition on a [Single].
type singleGrant struct {
	single *Single
	owner  string
	block  int
	parts  []part
	tops   []int64 // the last token of each key's block
}

// acquire takes one part and notes its tokens. When ctx ends while the call is on its way, what it takes is given back once its
// answer comes.
func (g *singleGrant) acquire(ctx context.Context, p *part, opts Options) error {
	p.acquire = acquireCommand(acquireScript, p.redis, g.owner, g.single.fence, 0, opts, false)
	reply, err := g.single.node.Run(ctx, new(node.Call).Of(p.acquire, 0, nil), func(*node.Call) {
		_ = g.single.node.Send(new(node.Call).Of(releaseCommand(&p.acquire, nil), 0, nil))
	})
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.names, Err: classify(ctx, err)}
	}
	tops, held, _, err := parseAcquire(reply, p.names)
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.names, Err: err}
	}
	if held != nil {
		return held
	}
	if g.tops == nil {
		g.tops = tops
	} else {
		g.tops = append(g.tops, tops...)
	}
	return nil
}

// Block returns how many tokens in a row are reserved.
func (g *singleGrant) Block() int { return g.block }

// transient are the first words of the error replies of a Redis that may serve again soon.
var transient = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY", "MISCONF", "NOREPLICAS"}

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
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isTransient reports whether an error reply is that of a server that may serve again soon. Before Redis 7 the reply of a command
// in a script is part of a longer one.
func isTransient(reply string) bool {
	word, rest, _ := strings.Cut(reply, " ")
	return slices.Contains(transient, word) || reply == "ERR max number of clients reached" ||
		word == "ERR" && slices.ContainsFunc(transient, func(w string) bool { return strings.Contains(rest, " -"+w+" ") })
}

// takeBack releases what an attempt has taken before it failed, and returns why it failed.
func (g *singleGrant) takeBack(ctx context.Context, cause error) error {
	if len(g.parts) == 1 && errors.Is(cause, ErrHeld) {
		return cause // a refused script leaves nothing
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	g.each(func(_, _ int, p part) {
		_, _ = g.single.node.Run(ctx, new(node.Call).Of(releaseCommand(&p.acquire, nil), 0, nil), nil)
	})
	return cause
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
		reply, err := g.single.node.Run(ctx, node.NewCall(nil, renewScript, p.redis, args...), nil)
		lost := 0
		if err == nil {
			lost, err = parseRenew(reply, len(p.names))
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

// releasePart releases one part, and tries again for as long as ctx lasts: a key that stays locked stops its users for a TTL.
func (g *singleGrant) releasePart(ctx context.Context, p part, tops []int64) (reply releaseReply, err error) {
	reply, err = g.releaseOnce(ctx, p, tops, g.single.node.Finish)
	if err == nil || errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) {
		return reply, err
	}
	last := err // of the server or the connection: the end of ctx must not hide it
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(releaseTimeout))
	err = backoff.Retry(func() error {
		var err error
		reply, err = g.releaseOnce(ctx, p, tops, func(ctx context.Context, c *node.Call) (any, error) {
			return g.single.node.Run(ctx, c, nil)
		})
		if errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) {
			return backoff.Permanent(err)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		return err
	}, backoff.WithContext(wait, ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", last)
	}
	return reply, err
}

// releaseOnce releases one part with one call.
func (g *singleGrant) releaseOnce(ctx context.Context, p part, tops []int64,
	run func(ctx context.Context, c *node.Call) (any, error),
) (releaseReply, error) {
	answer, err := run(ctx, new(node.Call).Of(releaseCommand(&p.acquire, tops), 0, nil))
	if err != nil {
		return releaseReply{}, err
	}
	return parseRelease(answer, len(p.names))
}
