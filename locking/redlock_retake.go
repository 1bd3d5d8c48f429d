package locking

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

// retakeMissing renews the lock on node i, or takes it if the node is not known to have it, as retake does. It calls
// then with whether the node is well. After an error then is not called, because the node may not be asked now.
func (g *redlockGrant) retakeMissing(i int, then func(well bool)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended, g.redlock.closing.Load(), leasing.Since(g.extended) >= quorum.Validity(g.lasts):
		g.stopSeeking(i)
		go then(false)
		return nil
	case g.tokens == nil, g.taking(i): // an answer is due that shows more
		go then(false)
		return nil
	}
	answered := func(err error) {
		if permanent(err) { // only the next renewal asks again
			g.stopSeeking(i)
		}
		go then(err == nil || permanent(err))
	}
	if g.rules.Counters(i) != nil {
		return g.renew(new(pipeline.Call), i, g.renewCommand(g.tokens, g.lasts), g.tokens, g.lasts,
			func(_ int, _ bool, err error) { answered(err) }) // what it has lost is taken by the next round
	}
	return g.askAgain(i, g.lasts, func(err error) {
		if err == nil { // granted, or another owner has it, whom the next renewal asks again
			g.stopSeeking(i)
		}
		answered(err)
	})
}

// askAgain sends an acquire call to node i that proposes the committed token. Of several keys it proposes the smallest
// token, because a wrong counter must not spread from one key to another; the next renewal sets each key's own. It calls
// then with the outcome under the mutex, unless then is nil, or askAgain itself fails. The caller holds the mutex.
func (g *redlockGrant) askAgain(i int, ttl time.Duration, then func(err error)) error {
	opts, n := g.opts, &g.nodes[i]
	opts.TTL, opts.Notify = ttl, 0
	strict := g.redlock.opts.Guard == GuardStrict
	token := slices.Min(g.tokens)
	request := acquireCommand(g.redlock.acquire, g.redisKeys, g.owner, g.redlock.opts.FenceTTL, token, opts, strict)
	if strict {
		n.sent, n.retried = time.Now(), true // the next renewal tries again
		request.Add(g.redlock.nodes[i].guard.Identity())
	}
	err := g.redlock.nodes[i].calls.Send(new(pipeline.Call).Of(request, i, func(c *pipeline.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		err := g.askedAgain(c)
		if then != nil {
			then(err)
		}
	}))
	if err == nil {
		n.several = n.several || n.asked
		n.asked, n.answered = true, false // a release waits for the answer
	}
	return err
}

// askedAgain records the answer of a node to an acquire call of askAgain, and returns its failure. The caller holds the
// mutex.
func (g *redlockGrant) askedAgain(c *pipeline.Call) error {
	i := c.Node
	n := &g.nodes[i]
	n.answered = true
	tops, held, _, err := g.parse(c)
	switch {
	case err != nil:
		n.failure = err
		if outcome := outcomeOf(err); outcome != unsent {
			n.outcome = outcome
			n.doubtful = n.doubtful || outcome == unknown
		}
	case held == nil:
		g.redlock.see(tops...)
		g.rules.Retaken(i, tops)
		fallthrough
	default:
		n.outcome = outcomeOf(nil)
	}
	if g.ended {
		g.releaseLate(i)
	}
	return err
}
