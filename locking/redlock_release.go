package locking

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking/internal/node"
	"github.com/railtoken/railtoken/locking/internal/quorum"
)

// Pauses between the releases that are sent in the background, and how many grants may do so at the same time.
const (
	firstInsistence = 50 * time.Millisecond
	maxInsistence   = time.Second
	maxInsisting    = 4096
)

// limit bounds how many do something at the same time.
type limit struct{ n atomic.Int64 }

func (l *limit) take() bool {
	if l.n.Add(1) <= maxInsisting {
		return true
	}
	l.n.Add(-1)
	return false
}

func (l *limit) give() { l.n.Add(-1) }

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
		case n.release == unclear && n.asked:
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
		case !n.asked:
			n.release = unclear
		case !which(i):
			n.release = gone
		case !n.answered: // it must not overtake the acquire call, which may yet be granted
			n.release = leaving
		default:
			g.release(i, &calls[i])
		}
	}
	g.answeredRelease()
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
	if err := g.redlock.nodes[i].calls.Send(call.Of(g.leave(g.rules.Counters(i)), i, g.onLeft)); err != nil {
		n.release, n.failure = unclear, err
		g.insist()
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

// left takes in the answer of a node to the release call.
func (g *redlockGrant) left(c *node.Call) {
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
	case reply.lost > 0:
		n.release = taken
	default:
		n.release = gone
	}
	g.answeredRelease()
	g.insist()
}

// insist sends the releases that had no answer again after a pause, when nobody waits for them any more, until the locks have run out: one that
// a server grants late, when it answers again, would keep the key from everybody for a whole TTL. The caller holds the mutex.
func (g *redlockGrant) insist() {
	if !g.alone || g.pause != 0 || !g.isUnclear() || time.Now().After(g.expiry) || !g.redlock.insisting.take() {
		return
	}
	g.pause = firstInsistence
	g.insistAfter()
}

// insistAfter sends them after the pause, which then grows. The caller holds the mutex.
func (g *redlockGrant) insistAfter() {
	time.AfterFunc(g.pause, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.isUnclear() && !g.isLeaving() || time.Now().After(g.expiry) {
			g.pause = 0
			g.redlock.insisting.give()
			return
		}
		for i := range g.nodes {
			if g.nodes[i].asked && g.nodes[i].release == unclear {
				g.release(i, &node.Call{})
			}
		}
		g.pause = min(2*g.pause, maxInsistence)
		g.insistAfter()
	})
}

// isUnclear reports whether a release had no answer. The caller holds the mutex.
func (g *redlockGrant) isUnclear() bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool {
		return n.asked && n.release == unclear && !isClosed(n.failure)
	})
}

// isLeaving reports whether a release is on its way. The caller holds the mutex.
func (g *redlockGrant) isLeaving() bool {
	return slices.ContainsFunc(g.nodes, func(n grantNode) bool { return n.release == leaving })
}

// leaveAlone ends the waiting for releases. The caller holds the mutex.
func (g *redlockGrant) leaveAlone() {
	g.alone, g.expiry = true, time.Now().Add(g.opts.TTL)
	g.insist()
}
