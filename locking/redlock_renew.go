package locking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

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

// lost returns the error of a grant whose locks are other owners'.
func (g *redlockGrant) lost(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, min(readTimeout, 2*g.redlock.opts.NodeTimeout))
	defer cancel()
	return lostError(g.keys, g.redisKeys, g.owner, cause, func(record string) string {
		return g.redlock.readAny(ctx, record)
	})
}

// readAny returns the value of a Redis key on the first node that has one, or an empty string.
func (r *Redlock) readAny(ctx context.Context, key string) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan string, len(r.nodes))
	var all sync.WaitGroup
	for _, n := range r.nodes {
		all.Go(func() {
			if text, err := n.client.Get(ctx, key).Result(); err == nil {
				found <- text
			}
		})
	}
	go func() {
		all.Wait()
		close(found)
	}()
	return <-found
}
