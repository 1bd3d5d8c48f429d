package locking

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

// errNotHeld is the failure of a node that does not renew a lock because another owner has it there, or has had it, or
// because the node has forgotten it.
var errNotHeld = errors.New("it does not have this lock, or no longer")

// errTaking is the failure of a node that has not renewed a lock while an acquire call was under way. It proves no
// loss, because that call may have raised the counter above the one in the renewal.
var errTaking = errors.New("the lock is being taken there")

// renewal is one renewal under way.
type renewal struct {
	began    time.Time
	ttl      time.Duration
	poll     quorum.Poll
	done     chan struct{} // closed once the outcome is certain
	counted  []bool        // nodes that are counted in the poll
	failures []error       // why each node has not renewed; nil if it has, or has not answered
	lost     []int         // nodes without the lock, until it is retaken there
}

// Renew extends the lock on a majority of the nodes, and then retakes the lock on the nodes that have lost it. Each
// node has NodeTimeout once the call is sent to it. Without a majority, calls that are still queued are never sent,
// because another renewal follows.
func (g *redlockGrant) Renew(ctx context.Context, ttl time.Duration) error {
	g.mu.Lock()
	tokens := g.tokens
	if tokens == nil {
		tokens = g.rules.Commit().Tokens
	}
	if tokens == nil { // every node has lost it
		g.mu.Unlock()
		return g.lost(ctx, nil)
	}
	r := &renewal{
		began: time.Now(), ttl: ttl, poll: quorum.NewPoll(len(g.nodes)), done: make(chan struct{}),
		counted: make([]bool, len(g.nodes)), failures: make([]error, len(g.nodes)),
	}
	calls, request := make([]pipeline.Call, len(g.nodes)), g.renewCommand(tokens, ttl)
	late := func(c *pipeline.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		r.count(c.Node, errNodeTimeout)
	}
	then := func(i int, ok bool, err error) {
		r.answered(i, ok, err)
		g.commit()
		g.retake(r)
	}
	for i := range g.nodes {
		var err error
		if g.rules.Elsewhere(i) {
			if g.taking(i) {
				err = errTaking
			}
			r.answered(i, false, err)
			continue
		}
		calls[i].Late = late
		if err = g.renew(&calls[i], i, request, tokens, ttl, then); err != nil {
			r.answered(i, false, err)
		}
	}
	g.retake(r)
	g.mu.Unlock()

	var ended error
	select {
	case <-r.done:
	case <-ctx.Done():
		ended = ctx.Err()
	}
	outcome, failure := g.renewOutcome(r, calls)
	switch outcome {
	case quorum.Done:
		return nil
	case quorum.Lost:
		return g.lost(ctx, failure)
	default:
		return &OpError{Op: "renew", Keys: g.keys, Err: errors.Join(ended, failure)}
	}
}

// renewOutcome returns the outcome of a renewal, and why nodes have not renewed. Without a majority it withdraws the
// calls that are still queued.
func (g *redlockGrant) renewOutcome(r *renewal, calls []pipeline.Call) (quorum.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	outcome := r.poll.Outcome()
	if outcome == quorum.Done {
		g.extended, g.lasts = r.began, r.ttl
		return outcome, nil
	}
	for i := range calls {
		g.redlock.nodes[i].calls.Withdraw(&calls[i])
	}
	return outcome, g.redlock.failure(r.failures)
}

// taking reports whether an acquire call to node i is unanswered. The caller holds the mutex.
func (g *redlockGrant) taking(i int) bool { return g.nodes[i].asked && !g.nodes[i].answered }

// answered records the outcome of the call to node i.
func (r *renewal) answered(i int, ok bool, err error) {
	if err == nil && !ok {
		err = errNotHeld
	}
	if errors.Is(err, errNotHeld) || errors.Is(err, errTaking) {
		r.lost = append(r.lost, i)
	}
	r.count(i, err)
}

// count counts node i, unless it was counted before: a late node may still answer.
func (r *renewal) count(i int, failure error) {
	if r.counted[i] {
		return
	}
	r.counted[i], r.failures[i] = true, failure
	if r.poll.Outcome() != quorum.Open {
		return
	}
	switch {
	case errors.Is(failure, errNotHeld):
		r.poll.No()
	case failure != nil:
		r.poll.Failed()
	default:
		r.poll.Yes()
	}
	if r.poll.Outcome() != quorum.Open {
		close(r.done)
	}
}

// retake asks for the lock on nodes that have lost it, for example by a restart, and on those that had another owner,
// so that a lease outlives a restart of all servers in turn. This is safe, because a majority has just renewed without
// these nodes, the tokens are committed, and the guard refuses a server that may have forgotten the lock of another
// owner. The caller holds the mutex.
func (g *redlockGrant) retake(r *renewal) {
	if r.poll.Outcome() != quorum.Done || g.tokens == nil || g.ended || leasing.Since(r.began) >= quorum.Validity(r.ttl) {
		return
	}
	for _, i := range r.lost {
		if !g.taking(i) { // otherwise the acquire call may still be granted
			_ = g.askAgain(i, r.ttl, nil)
		}
	}
	r.lost = nil
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
