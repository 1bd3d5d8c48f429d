package locking

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
)

// redlockGrant is one acquisition on a [Redlock]. It sends calls to the nodes, and passes their answers to the rules of
// package quorum.
type redlockGrant struct {
	redlock     *Redlock
	owner       string
	keys        []string
	redisKeys   []string // lock, fence counter and subscription of each
	opts        Options
	acquireCall pipeline.Command
	takeOver    pipeline.Command // sent instead of acquireCall, to take the key away from its owner
	releaseCall pipeline.Command // for nodes that hold the committed tokens

	onAnswer  func(*pipeline.Call) // handleAcquire, made once for all nodes
	onLate    func(*pipeline.Call) // handleLate
	onRelease func(*pipeline.Call) // handleRelease

	mu    sync.Mutex
	calls []pipeline.Call // the acquire calls
	rules *quorum.Acquisition
	nodes []grantNode
	held  *HeldError // the refusal whose lock lasts longest
	value string     // of that lock

	settled   chan struct{} // closed once the verdict is certain
	committed chan struct{} // closed once tokens are certain
	tokens    []int64       // committed: the last one of each key's block
	extended  time.Time     // when the last extension by a majority began
	lasts     time.Duration // its TTL
	waiting   bool          // another step of the commit is due after commitPause
	ended     bool          // given back: the commit stops, and late grants are released
	began     time.Time

	enough          func() bool   // whether the wait for releases can end; nil when nothing waits
	round           chan struct{} // closed when it ends
	abandoned       bool          // it was given back before it became a lease
	unreleased      bool          // Release has failed, so a release by a majority is told of
	unattended      bool          // nothing waits for releases, so unclear ones are repeated in the background
	unattendedSince time.Time
	pauses          *backoff.ExponentialBackOff // between the repetitions; nil while none is due
	open, blocking  bool                        // whether Close waits for the grant: see Redlock
	notify          bool
}

// grantNode is what a grant knows about its calls to one node.
type grantNode struct {
	asked    bool    // the acquire call was sent
	answered bool    // the acquire call has its answer, or never will
	outcome  outcome // of the answered acquire call
	doubtful bool    // an acquire call had no answer, and may still arrive
	several  bool    // more than one acquire call was sent
	failure  error   // of the last call
	sent     time.Time
	retried  bool // the call was repeated, after the server had shown another identity
	release  releaseState
	missing  bool // a call has failed, so the lock may be missing there
	sought   bool // it is taken once the node answers
	repeated bool // an unanswered release may have been executed, so that a later answer proves no loss
}

// releaseState is how far the release on one node is.
type releaseState int

const (
	kept      releaseState = iota
	releasing              // the call is under way, or waits for the answer to the acquire call
	released               // nothing of this owner is left on the node
	taken                  // released, and another holder has had the key since
	unclear                // the call had no answer, or could not be made
)

func (g *redlockGrant) isOf(l Locker) bool { return l == Locker(g.redlock) }

// failed records that a call to node i has failed, so that its lock may be missing there. The caller holds the mutex.
func (g *redlockGrant) failed(i int) {
	g.nodes[i].missing = true
	g.seekMissing()
}

// seekMissing has missing locks taken once the node answers, if the grant is a lease. The caller holds the mutex.
func (g *redlockGrant) seekMissing() {
	if g.ended || g.rules.Verdict() != quorum.Won {
		return
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.missing && !n.sought {
			n.sought = true
			g.redlock.nodes[i].missing.add(g)
		}
	}
}

// stopSeeking ends what seekMissing has begun on node i. The caller holds the mutex.
func (g *redlockGrant) stopSeeking(i int) {
	n := &g.nodes[i]
	if n.missing = false; n.sought {
		n.sought = false
		g.redlock.nodes[i].missing.drop(g)
	}
}

// stopSeekingAll is called when the grant has ended. The caller holds the mutex.
func (g *redlockGrant) stopSeekingAll() {
	for i := range g.nodes {
		g.stopSeeking(i)
	}
}

// taking reports whether an acquire call to node i is unanswered. The caller holds the mutex.
func (g *redlockGrant) taking(i int) bool { return g.nodes[i].asked && !g.nodes[i].answered }

func (g *redlockGrant) hasOwner(value string) bool { return g.owner == value }

func (g *redlockGrant) ownedBy(name string) bool { return lockwire.Name(g.owner) == name }
