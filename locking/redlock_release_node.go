package locking

import (
	"math"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/rediswire"
)

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

// releaseChanged ends the wait for releases if that is possible, and updates what Close waits for. The caller holds the
// mutex.
func (g *redlockGrant) releaseChanged() {
	if g.enough != nil && g.enough() {
		close(g.round)
		g.enough = nil
	}
	g.account()
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

// stopAttending has unclear releases repeated in the background from now on. The caller holds the mutex.
func (g *redlockGrant) stopAttending() {
	g.unattended, g.unattendedSince = true, time.Now()
	g.retryRelease()
}

// retryRelease starts to repeat unclear releases, if nothing waits for them: until the locks have expired, or for
// lateRetry where the acquire call may still be granted. The caller holds the mutex.
func (g *redlockGrant) retryRelease() {
	if !g.unattended || g.pauses != nil || !g.anyRelease(unclear) || time.Now().After(g.retryUntil()) {
		return
	}
	if !g.redlock.retrying.add(maxRetries) {
		g.count(0)
		return
	}
	g.pauses = newRetryPauses()
	g.retryAfterPause()
}

// retryAfterPause repeats unclear releases after a pause, until none is left. The caller holds the mutex.
func (g *redlockGrant) retryAfterPause() {
	time.AfterFunc(g.pauses.NextBackOff(), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.anyRelease(unclear) && !g.anyRelease(releasing) || time.Now().After(g.retryUntil()) {
			g.pauses = nil
			g.redlock.retrying.done()
			g.count(0)
			return
		}
		for i := range g.nodes {
			if g.nodes[i].release == unclear {
				g.release(i, &pipeline.Call{})
			}
		}
		g.retryAfterPause()
	})
}

// retryUntil returns when releases stop being repeated. The caller holds the mutex.
func (g *redlockGrant) retryUntil() time.Time {
	if slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == unclear && n.doubtful }) {
		return g.unattendedSince.Add(lateRetry)
	}
	return g.unattendedSince.Add(g.opts.TTL)
}

// isRelease reports whether the release on a node is in the state. An unclear release is over once the client is
// closed.
func (n *grantNode) isRelease(state releaseState) bool {
	return n.release == state && (state != unclear || !isClosed(n.failure))
}

// anyRelease reports whether the release on any node is in the state. The caller holds the mutex.
func (g *redlockGrant) anyRelease(state releaseState) bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.isRelease(state) })
}

// account makes Close wait for the grant while releases have no answer. It does not wait for a release that would fail
// again in the same way. The caller holds the mutex.
func (g *redlockGrant) account() {
	unanswered := 0
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.release == releasing || n.release == unclear && !permanent(n.failure) && !rediswire.IsUnrun(n.failure) {
			unanswered++
		}
	}
	g.count(unanswered)
}

// count adds the grant to the open and blocking ones, or removes it, by the number of its unanswered releases. The
// caller holds the mutex.
func (g *redlockGrant) count(unanswered int) {
	spare := len(g.nodes) - quorum.Of(len(g.nodes))
	counted(&g.open, &g.redlock.open, unanswered > 0)
	counted(&g.blocking, &g.redlock.blocking, unanswered > spare)
}

// counted adds a grant to p or removes it, unless that was done before.
func counted(is *bool, p *pending, should bool) {
	switch {
	case should && !*is:
		p.add(math.MaxInt)
	case !should && *is:
		p.done()
	}
	*is = should
}
