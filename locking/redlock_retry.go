package locking

import (
	"math"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/locking/internal/pipeline"
)

// stopAttending ends the wait for releases: from now on unclear ones are repeated in the background. The caller holds
// the mutex.
func (g *redlockGrant) stopAttending() {
	g.unattended, g.unattendedSince = true, time.Now()
	g.retryRelease()
}

// retryRelease repeats unattended, unanswered releases after a pause: until the locks have expired, or for lateRetry
// where the acquire call may yet be granted. The caller holds the mutex.
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

// retryAfterPause repeats them after a pause, and again while any has no answer. The caller holds the mutex.
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

// retryUntil returns until when releases are repeated. The caller holds the mutex.
func (g *redlockGrant) retryUntil() time.Time {
	if slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == unclear && n.doubtful }) {
		return g.unattendedSince.Add(lateRetry)
	}
	return g.unattendedSince.Add(g.opts.TTL)
}

// isRelease reports whether the release on a node is in a state. An unclear one whose client is closed is over.
func (n *grantNode) isRelease(state releaseState) bool {
	return n.release == state && (state != unclear || !isClosed(n.failure))
}

// anyRelease reports whether the release on any node is in a state. The caller holds the mutex.
func (g *redlockGrant) anyRelease(state releaseState) bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.isRelease(state) })
}

// account counts the grant for Close while releases have no answer. The caller holds the mutex.
func (g *redlockGrant) account() {
	unanswered := 0
	for i := range g.nodes {
		if n := &g.nodes[i]; n.isRelease(releasing) || n.isRelease(unclear) {
			unanswered++
		}
	}
	g.count(unanswered)
}

// count makes the grant one of those that are open and blocking, or not, by the number of unanswered releases. The
// caller holds the mutex.
func (g *redlockGrant) count(unanswered int) {
	spare := len(g.nodes) - quorum.Of(len(g.nodes))
	counted(&g.open, &g.redlock.open, unanswered > 0)
	counted(&g.blocking, &g.redlock.blocking, unanswered > spare)
}

// counted adds one to pending or takes it away, when it is not so yet.
func counted(is *bool, p *pending, should bool) {
	switch {
	case should && !*is:
		p.add(math.MaxInt)
	case !should && *is:
		p.done()
	}
	*is = should
}
