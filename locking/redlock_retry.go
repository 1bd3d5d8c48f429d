package locking

import (
	"math"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/rediswire"
)

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
