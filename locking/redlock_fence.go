package locking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// commitPause is the pause after an unanswered step of a commit.
const commitPause = 20 * time.Millisecond

// commit takes the next steps to make the tokens certain (docs/design.md, 3.4). The caller holds the mutex.
func (g *redlockGrant) commit() {
	if g.ended || g.tokens != nil {
		return
	}
	step := g.rules.Commit()
	if step.Done {
		g.tokens = step.Tokens
		close(g.committed)
		return
	}
	if step.Lost {
		g.ended = true
		close(g.committed)
		return
	}
	request := g.renewCommand(step.Tokens, g.opts.TTL)
	for _, i := range step.Renew {
		g.rules.Renewing(i)
		err := g.renew(new(pipeline.Call), i, request, step.Tokens, g.opts.TTL, func(_ int, _ bool, err error) {
			if err != nil {
				g.commitLater()
				return
			}
			g.commit()
		})
		if err != nil {
			g.rules.RenewFailed(i)
			g.commitLater()
		}
	}
}

// commitLater calls commit after a pause. The caller holds the mutex.
func (g *redlockGrant) commitLater() {
	if g.waiting || g.ended || leasing.Since(g.began) > g.opts.TTL { // then the lease's own renewals go on with it
		return
	}
	g.waiting = true
	time.AfterFunc(commitPause, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting = false
		g.commit()
	})
}

// renewCommand returns the call that renews the lock on a node with these tokens.
func (g *redlockGrant) renewCommand(tokens []int64, ttl time.Duration) pipeline.Command {
	c := renewScript.Like(&g.acquireCall, 2+len(tokens))
	c.Add(ms(ttl), ms(g.redlock.opts.FenceTTL))
	for _, token := range tokens {
		c.Add(token)
	}
	return c
}

// renew sends the renew call to node i, and calls then with its outcome under the mutex. request is the command for the
// tokens. The caller holds the mutex.
func (g *redlockGrant) renew(
	call *pipeline.Call, i int, request pipeline.Command, tokens []int64, ttl time.Duration,
	then func(i int, ok bool, err error),
) error {
	// The counters of a late grant may be larger; its lock is ours, too.
	if own := g.rules.Counters(i); own != nil && !slices.Equal(own, tokens) {
		tokens = slices.Clone(tokens)
		for k := range tokens {
			tokens[k] = max(tokens[k], own[k])
		}
		request = g.renewCommand(tokens, ttl)
	}
	taking := g.taking(i)
	late := call.Late
	call.Of(request, i, func(c *pipeline.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		lost, err := 0, c.Err
		if err == nil {
			lost, err = parseRenew(c.Reply, len(g.keys))
		}
		if lost > 0 && taking {
			err = errTaking
		}
		if err != nil {
			g.nodes[i].failure = err
			g.rules.RenewFailed(i)
			if !errors.Is(err, errTaking) {
				g.failed(i)
			}
		} else {
			g.rules.Renewed(i, tokens, lost == 0)
			if lost == 0 {
				g.stopSeeking(i)
			}
		}
		then(i, lost == 0, err)
	}).Late = late
	err := g.redlock.nodes[i].calls.Send(call)
	if err != nil {
		g.failed(i)
	}
	return err
}

// Block returns how many consecutive tokens are reserved.
func (g *redlockGrant) Block() int { return g.opts.block }

// Fence returns the first token of the block of the i-th key, once a quorum of the nodes holds the block.
func (g *redlockGrant) Fence(ctx context.Context, i int) (int64, error) {
	select {
	case <-g.committed:
	default:
		select {
		case <-g.committed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if g.tokens == nil {
		return 0, &LostError{Keys: g.keys, Reason: LossTaken}
	}
	return g.tokens[i] - int64(g.opts.block) + 1, nil
}
