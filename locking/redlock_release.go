package locking

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/locking/internal/node"
)

// releaseState is how far the release on one node is.
type releaseState int

const (
	kept    releaseState = iota
	leaving              // the call is on its way, or waits for the answer to the acquire call
	gone                 // nothing of this owner is left there
	taken                // so, and somebody else has had the key since
	unclear              // the call had no answer, or was not made
)

// abandon gives back what an attempt has taken that failed. It waits for the nodes that have granted, for NodeTimeout at most; a
// node of which nothing is known is told too, but nobody waits for it.
func (g *redlockGrant) abandon() {
	g.mu.Lock()
	g.ended = true
	round := g.releaseAll(func(i int) bool { return !g.rules.Elsewhere(i) }, func() bool {
		for i := range g.nodes {
			if g.nodes[i].release == leaving && g.rules.Counters(i) != nil {
				return false
			}
		}
		return true
	})
	g.mu.Unlock()
	g.await(round)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveAlone()
}

// Release deletes the lock on every node, and returns when a majority of them has done it. A node that does not answer is asked
// again for as long as ctx lasts, unless a majority has answered before.
func (g *redlockGrant) Release(ctx context.Context) (contended bool, err error) {
	final := func(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, redis.ErrClosed) }
	err = g.releaseOnce()
	if err != nil && !final(err) {
		wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(releaseTimeout))
		err = backoff.Retry(func() error {
			err := g.releaseOnce()
			if final(err) {
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(wait, ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveAlone()
	return g.contended || err != nil, err
}

// releaseOnce asks every node that has not released yet.
func (g *redlockGrant) releaseOnce() error {
	g.mu.Lock()
	g.ended = true
	g.withdraw()
	round := g.releaseAll(func(int) bool { return true }, func() bool { return g.outcome() != quorum.Open })
	g.mu.Unlock()
	g.await(round)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.outcome() {
	case quorum.Done:
		return nil
	case quorum.Lost:
		return &LostError{Keys: g.names, Reason: LossTaken}
	default:
		return &OpError{Op: "release", Keys: g.names, Err: g.failure()}
	}
}

// outcome returns what the release has come to. It is done when a majority of the nodes, each of which had granted, has deleted the lock, so
// that the next owner finds it free; or when every node has answered. The caller holds the mutex.
func (g *redlockGrant) outcome() quorum.Outcome {
	var deleted, lost, pending, failed int
	for i, n := range g.nodes {
		switch {
		case n.release == taken:
			lost++
		case n.release == gone && g.rules.Counters(i) != nil:
			deleted++
		case n.release == leaving:
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

// releaseAll sends the release to the nodes that which reports, except where it was done before. The channel that it returns is closed
// once enough reports that no more answers are needed. The caller holds the mutex.
func (g *redlockGrant) releaseAll(which func(i int) bool, enough func() bool) <-chan struct{} {
	round := make(chan struct{})
	g.enough, g.round = enough, round
	calls := make([]node.Call, len(g.nodes))
	for i := range g.nodes {
		switch n := &g.nodes[i]; {
		case n.release == gone, n.release == taken, n.release == leaving:
		case !n.asked, n.answered && n.outcome == unsent:
			n.release = gone
		case !which(i):
			n.release = gone
		case !n.answered: // it must not overtake the acquire call, which may yet be granted
			n.release = leaving
		default:
			g.release(i, &calls[i])
		}
	}
	g.answeredRelease()
	g.account()
	return round
}

// answeredRelease looks whether whoever waits for the releases can go on. The caller holds the mutex.
func (g *redlockGrant) answeredRelease() {
	if g.enough != nil && g.enough() {
		close(g.round)
		g.enough = nil
	}
}

// await waits for a round of releases, for NodeTimeout at most.
func (g *redlockGrant) await(round <-chan struct{}) {
	select {
	case <-round:
		return
	default:
	}
	timer := time.NewTimer(g.redlock.opts.NodeTimeout)
	defer timer.Stop()
	select {
	case <-round:
	case <-timer.C:
	}
}

// release sends the release call to node i. The caller holds the mutex.
func (g *redlockGrant) release(i int, call *node.Call) {
	n := &g.nodes[i]
	n.release = leaving
	command := g.leave(g.rules.Counters(i))
	if n.doubtful {
		command = abandonCommand(&g.request, g.redlock.opts.FenceTTL, n.several)
	}
	if err := g.redlock.nodes[i].calls.Send(call.Of(command, i, g.onLeft)); err != nil {
		n.release, n.failure = unclear, err
		g.account()
		g.insist()
	}
}

// releaseLate releases on node i, which has answered the acquire call when the locks were given back already. The caller holds the mutex.
func (g *redlockGrant) releaseLate(i int) {
	n := &g.nodes[i]
	switch {
	case n.release != leaving:
	case n.outcome == unsent:
		n.release = gone
		g.answeredRelease()
		g.account()
	default:
		g.release(i, &node.Call{})
	}
}

// leave returns the release call for a node with these counters, nil when they are not known. The caller holds the mutex.
func (g *redlockGrant) leave(counters []int64) node.Command {
	common := g.tokens != nil && slices.Equal(counters, g.tokens)
	if common && !g.goodbye.Empty() {
		return g.goodbye
	}
	command := releaseCommand(&g.request, counters)
	if common {
		g.goodbye = command
	}
	return command
}

// released takes in the answer of a node to the release call.
func (g *redlockGrant) released(c *node.Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := &g.nodes[c.Node]
	reply, err := releaseReply{}, c.Err
	if err == nil {
		reply, err = parseRelease(c.Reply, len(g.names))
	}
	g.contended = g.contended || reply.contended
	switch {
	case err != nil:
		n.release, n.failure = unclear, err
		n.repeated = n.repeated || outcomeOf(err) == unknown
	case reply.lost > 0 && !n.repeated:
		n.release = taken
	default:
		n.release = gone
	}
	g.answeredRelease()
	g.account()
	g.insist()
}

// insist sends the releases that had no answer again after a pause, when nobody waits for them any more: until the locks have run out, or for
// lateRetry where the acquire call may yet be granted. The caller holds the mutex.
func (g *redlockGrant) insist() {
	if !g.alone || g.pauses != nil || !g.isUnclear() || time.Now().After(g.expiry()) {
		return
	}
	if !g.redlock.insisting.add(maxRetries) {
		g.uncount()
		return
	}
	g.pauses = newRetry()
	g.insistAfter()
}

// insistAfter sends them after a pause. The caller holds the mutex.
func (g *redlockGrant) insistAfter() {
	time.AfterFunc(g.pauses.NextBackOff(), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.isUnclear() && !g.isLeaving() || time.Now().After(g.expiry()) {
			g.pauses = nil
			g.redlock.insisting.done()
			g.uncount()
			return
		}
		for i := range g.nodes {
			if g.nodes[i].release == unclear {
				g.release(i, &node.Call{})
			}
		}
		g.insistAfter()
	})
}

// expiry returns until when releases are sent again. The caller holds the mutex.
func (g *redlockGrant) expiry() time.Time {
	if slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == unclear && n.doubtful }) {
		return g.left.Add(lateRetry)
	}
	return g.left.Add(g.opts.TTL)
}

// isUnclear reports whether a release had no answer. The caller holds the mutex.
func (g *redlockGrant) isUnclear() bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == unclear && !isClosed(n.failure) })
}

// isLeaving reports whether a release is on its way. The caller holds the mutex.
func (g *redlockGrant) isLeaving() bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == leaving })
}

// account counts the grant for Close while releases have no answer. The caller holds the mutex.
func (g *redlockGrant) account() {
	open := 0
	for _, n := range g.nodes {
		if n.release == leaving || n.release == unclear && !isClosed(n.failure) {
			open++
		}
	}
	g.count(&g.open, &g.redlock.open, open > 0)
	g.count(&g.blocking, &g.redlock.blocking, open > len(g.nodes)-quorum.Of(len(g.nodes)))
}

// uncount undoes that. The caller holds the mutex.
func (g *redlockGrant) uncount() {
	g.count(&g.open, &g.redlock.open, false)
	g.count(&g.blocking, &g.redlock.blocking, false)
}

// count makes the grant one of those that are pending, or not. The caller holds the mutex.
func (g *redlockGrant) count(counted *bool, among *pending, counts bool) {
	switch {
	case counts && !*counted:
		*counted = among.add(math.MaxInt)
	case !counts && *counted:
		*counted = false
		among.done()
	}
}

// leaveAlone ends the waiting for releases. The caller holds the mutex.
func (g *redlockGrant) leaveAlone() {
	g.alone, g.left = true, time.Now()
	g.insist()
}
