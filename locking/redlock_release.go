package locking

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

// releaseState is how far the release on one node is.
type releaseState int

const (
	kept      releaseState = iota
	releasing              // the call is under way, or waits for the answer to the acquire call
	released               // nothing of this owner is left on the node
	taken                  // released, and another holder has had the key since
	unclear                // the call had no answer, or could not be made
)

// abandon gives back what a failed attempt has taken. It waits for the nodes that have granted, for NodeTimeout at
// most, but not for those of which nothing is known.
func (g *redlockGrant) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended, g.abandoned = true, true
	g.stopSeekingAll()
	g.releaseAll(func(i int) bool { return !g.rules.Elsewhere(i) }, func() bool {
		for i := range g.nodes {
			if g.nodes[i].release == releasing && g.rules.Counters(i) != nil {
				return false
			}
		}
		return true
	})
	g.stopAttending()
}

// tell reports the released keys of a grant, if another caller waits for one of them.
func (g *redlockGrant) tell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.notify {
		go g.redlock.late.report(g.keys)
	}
}

// Release deletes the lock on every node, and returns once a majority has done so. Until then it repeats unanswered
// calls while ctx lasts.
func (g *redlockGrant) Release(ctx context.Context) (notify bool, err error) {
	final := func(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, redis.ErrClosed) }
	err = g.releaseOnce()
	if err != nil && !final(err) {
		pauses := backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(firstRetry), backoff.WithMaxElapsedTime(releaseTimeout))
		_ = backoff.Retry(func() error { // when its time is up, it does not return the cause
			if err = g.releaseOnce(); final(err) {
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(pauses, ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unreleased = err != nil && !final(err)
	g.stopAttending()
	return g.notify || err != nil, err
}

// releaseOnce releases on every node that has not released yet.
func (g *redlockGrant) releaseOnce() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.stopSeekingAll()
	g.withdraw()
	g.releaseAll(func(int) bool { return true }, func() bool { return g.releaseOutcome() != quorum.Open })
	switch g.releaseOutcome() {
	case quorum.Done:
		return nil
	case quorum.Lost:
		return &LostError{Keys: g.keys, Reason: LossTaken}
	default:
		return &OpError{Op: "release", Keys: g.keys, Err: g.failure()}
	}
}

// releaseOutcome returns the outcome of the release so far. It is done when a majority of the nodes, each of which had
// granted, has deleted the lock, so that the next owner finds it free; or when every node has answered. The caller
// holds the mutex.
func (g *redlockGrant) releaseOutcome() quorum.Outcome {
	var deleted, lost, pending, failed int
	for i, n := range g.nodes {
		switch {
		case n.release == taken:
			lost++
		case n.release == released && g.rules.Counters(i) != nil:
			deleted++
		case n.release == releasing:
			pending++
		case n.release == unclear:
			failed++
		}
	}
	switch {
	case deleted >= quorum.Of(len(g.nodes)):
		return quorum.Done
	case lost > len(g.nodes)-quorum.Of(len(g.nodes)):
		return quorum.Lost
	case pending > 0:
		return quorum.Open
	case failed > 0:
		return quorum.Unknown
	default:
		return quorum.Done
	}
}

// releaseAll releases on the nodes for which which is true, unless that was done before. It waits without the mutex
// until enough returns true, for NodeTimeout at most. The caller holds the mutex.
func (g *redlockGrant) releaseAll(which func(i int) bool, enough func() bool) {
	round := make(chan struct{})
	g.enough, g.round = enough, round
	calls := make([]pipeline.Call, len(g.nodes))
	for i := range g.nodes {
		switch n := &g.nodes[i]; {
		case n.release == released, n.release == taken, n.release == releasing:
		case !n.asked, n.answered && n.outcome == unsent, !which(i):
			n.release = released
		case !n.answered: // the release must not overtake the acquire call, which may still be granted
			n.release = releasing
		default:
			g.release(i, &calls[i])
		}
	}
	g.releaseChanged()
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-round:
	default:
		sleep(context.Background(), g.redlock.opts.NodeTimeout, round)
	}
}

// releaseChanged ends the wait for releases if that is possible, and updates what Close waits for. The caller holds the
// mutex.
func (g *redlockGrant) releaseChanged() {
	if g.enough != nil && g.enough() {
		close(g.round)
		g.enough = nil
	}
	g.account()
}

// release sends the release call to node i. The caller holds the mutex.
func (g *redlockGrant) release(i int, call *pipeline.Call) {
	n := &g.nodes[i]
	n.release = releasing
	command := g.releaseCommand(g.rules.Counters(i))
	if n.doubtful {
		command = abandonCommand(&g.acquireCall, g.redlock.opts.FenceTTL, n.several, n.repeated)
	}
	if err := g.redlock.nodes[i].calls.Send(call.Of(command, i, g.onRelease)); err != nil {
		n.release, n.failure = unclear, err
		g.account()
		g.retryRelease()
	}
}

// releaseLate releases on node i, which has answered the acquire call after the locks were given back. The caller holds
// the mutex.
func (g *redlockGrant) releaseLate(i int) {
	n := &g.nodes[i]
	switch {
	case n.release != releasing:
	case n.outcome == unsent:
		n.release = released
		g.releaseChanged()
	default:
		g.release(i, &pipeline.Call{})
	}
}

// releaseCommand returns the release call for a node with these counters, which are nil if unknown. The caller holds
// the mutex.
func (g *redlockGrant) releaseCommand(counters []int64) pipeline.Command {
	common := g.tokens != nil && slices.Equal(counters, g.tokens)
	if common && !g.releaseCall.Empty() {
		return g.releaseCall
	}
	command := releaseCommand(&g.acquireCall, counters)
	if common {
		g.releaseCall = command
	}
	return command
}

// handleRelease records the answer of a node to the release call.
func (g *redlockGrant) handleRelease(c *pipeline.Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := &g.nodes[c.Node]
	reply, err := releaseReply{}, c.Err
	if err == nil {
		reply, err = parseRelease(c.Reply, len(g.keys))
	}
	g.notify = g.notify || reply.notify
	switch {
	case err != nil:
		n.release, n.failure = unclear, err
		n.repeated = n.repeated || outcomeOf(err) == unknown
	case reply.lost > 0 && !n.repeated:
		n.release = taken
	default:
		n.release = released
	}
	if g.freesLate(n, reply) && g.redlock.blocking.add(math.MaxInt) {
		go func() {
			defer g.redlock.blocking.done()
			g.redlock.late.report(g.keys)
		}()
	}
	g.releaseChanged()
	g.retryRelease()
}

// freesLate reports whether the answer of a node to the release call has to be told: it has deleted what the server has
// granted to an attempt after that was given back, or a majority has released at last what Release could not. The caller
// holds the mutex.
func (g *redlockGrant) freesLate(n *grantNode, reply releaseReply) bool {
	if g.unreleased && g.releaseOutcome() == quorum.Done {
		g.unreleased = false
		return g.notify
	}
	return g.abandoned && n.doubtful && reply.notify
}
