package locking

import (
	"context"
	"errors"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
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
