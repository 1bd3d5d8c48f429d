package locking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/restartguard"
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

func newRedlockGrant(r *Redlock, keys, redisKeys []string, opts Options) *redlockGrant {
	g := &redlockGrant{
		redlock: r, owner: lockwire.NewOwner(opts.Label, opts.block, time.Now()), keys: keys,
		redisKeys: redisKeys, opts: opts,
		rules: quorum.New(len(r.nodes)), nodes: make([]grantNode, len(r.nodes)),
		settled: make(chan struct{}), committed: make(chan struct{}), began: time.Now(), lasts: opts.TTL,
	}
	g.extended = g.began
	g.onAnswer, g.onLate, g.onRelease = g.handleAcquire, g.handleLate, g.handleRelease
	last := r.clock.Propose(time.Now().UnixMicro(), int64(opts.block))
	strict := r.opts.Guard == GuardStrict
	g.acquireCall = acquireCommand(r.acquire, redisKeys, g.owner, r.opts.FenceTTL, last, opts, strict)
	return g
}

// queueShare bounds how long an attempt may be queued: for 1/queueShare of its TTL, which includes the time in the
// queue.
const queueShare = 4

// acquire asks every node, and returns as soon as the outcome is certain. Each node has NodeTimeout once the call is
// sent to it, because a call that is queued in this process says nothing about the node. After an error, calls that are
// still queued are never sent.
func (g *redlockGrant) acquire(ctx context.Context) (quorum.Verdict, error) {
	g.mu.Lock()
	g.calls = make([]pipeline.Call, len(g.nodes))
	for i := range g.nodes {
		g.ask(i, &g.calls[i])
	}
	g.settle()
	g.mu.Unlock()

	timer := time.NewTimer(g.opts.TTL / queueShare)
	defer timer.Stop()
	select {
	case <-g.settled:
	case <-timer.C:
		g.giveUp(errOverload)
	case <-ctx.Done():
		g.giveUp(ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	verdict := g.rules.Verdict()
	if verdict == quorum.Won {
		g.commit()
		g.seekMissing()
		return verdict, nil
	}
	g.withdraw()
	switch {
	case ctx.Err() != nil:
		return quorum.Unreachable, &OpError{Op: "acquire", Keys: g.keys, Err: ctx.Err()}
	case verdict == quorum.Unreachable:
		return verdict, &OpError{Op: "acquire", Keys: g.keys, Err: g.failure()}
	default:
		if err := reentry(ctx, g.held, g.value); err != nil {
			return verdict, err
		}
		return verdict, g.held
	}
}

// ask sends the acquire call to node i. The caller holds the mutex.
func (g *redlockGrant) ask(i int, call *pipeline.Call) {
	n, request := g.redlock.nodes[i], g.acquireCall
	if !g.takeOver.Empty() {
		request = g.takeOver
	}
	if g.redlock.opts.Guard == GuardStrict {
		g.nodes[i].sent = time.Now()
		request = request.With(n.guard.Identity()) // the last argument
	}
	call.Of(request, i, g.onAnswer).Late = g.onLate
	if err := n.calls.Send(call); err != nil {
		g.fail(i, err)
		return
	}
	g.nodes[i].asked = true
}

// fail records that node i will not answer. The caller holds the mutex.
func (g *redlockGrant) fail(i int, err error) {
	g.nodes[i].answered = true
	g.nodes[i].failure = err
	g.rules.Failed(i)
	g.failed(i)
}

// handleLate records that a node has not answered the acquire call, or an earlier one, within NodeTimeout. The answer
// may still come.
func (g *redlockGrant) handleLate(c *pipeline.Call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := &g.nodes[c.Node]; !n.answered {
		n.failure = errNodeTimeout
		g.rules.Failed(c.Node)
		g.settle()
	}
}

// withdraw withdraws the acquire calls that are still queued, so that nothing of them reaches the nodes. The caller
// holds the mutex.
func (g *redlockGrant) withdraw() {
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.asked && !n.answered && !n.retried && g.redlock.nodes[i].calls.Withdraw(&g.calls[i]) {
			n.answered, n.outcome = true, unsent
			g.rules.Failed(i)
		}
	}
}

// handleAcquire records the answer of a node to the acquire call, however late.
func (g *redlockGrant) handleAcquire(c *pipeline.Call) {
	i := c.Node
	g.mu.Lock()
	defer g.mu.Unlock()
	tops, held, value, err := g.parse(c)
	switch {
	case errors.Is(err, errAskedAgain):
		return
	case err != nil:
		g.nodes[i].outcome = outcomeOf(err)
		g.nodes[i].doubtful = g.nodes[i].outcome == unknown
		g.fail(i, err)
	case held != nil:
		g.redlock.see(held.Holder.Fence + lockwire.ParseOwner(value).Block)
		if g.held == nil || outlasts(held.Holder.Remaining, g.held.Holder.Remaining) {
			g.held, g.value = held, value
		}
		g.nodes[i].answered = true
		g.rules.Held(i, value)
	default:
		g.redlock.see(tops...)
		g.nodes[i].answered = true
		g.rules.Granted(i, tops)
	}
	g.settle()
	if g.ended {
		g.releaseLate(i)
		return
	}
	if g.rules.Verdict() == quorum.Won {
		g.commit()
	}
}

// errAskedAgain means that the call was sent again.
var errAskedAgain = errors.New("another server has answered")

// parse reads the answer to an acquire call, as parseAcquire does. The caller holds the mutex.
func (g *redlockGrant) parse(c *pipeline.Call) (tops []int64, held *HeldError, value string, err error) {
	if c.Err != nil {
		return nil, nil, "", c.Err
	}
	if g.redlock.opts.Guard == GuardStrict {
		again, err := g.otherServer(c.Node, c.Reply)
		switch {
		case again:
			return nil, nil, "", errAskedAgain
		case err != nil:
			return nil, nil, "", err
		}
	}
	return parseAcquire(c.Reply, g.keys)
}

// outlasts reports whether the remaining time a is longer than b. A negative time has no end.
func outlasts(a, b time.Duration) bool { return b >= 0 && (a < 0 || a > b) }

// otherServer checks whether the strict script has run in the server that was vetted. If it has run in another server
// that may vote, otherServer sends the call again and returns true.
func (g *redlockGrant) otherServer(i int, reply any) (again bool, err error) {
	n := g.redlock.nodes[i]
	facts, other, err := restartguard.ParseReply(reply, g.nodes[i].sent, time.Now())
	if !other {
		return false, nil
	}
	if err == nil {
		err = n.guard.Reject(facts)
	}
	if err != nil {
		return false, err
	}
	if g.nodes[i].retried || g.ended {
		return false, errors.New("the server changes again and again")
	}
	g.nodes[i].retried = true
	g.ask(i, &pipeline.Call{})
	if g.nodes[i].answered {
		return false, g.nodes[i].failure
	}
	return true, nil
}

// settle lets acquire return once the verdict is certain. The caller holds the mutex.
func (g *redlockGrant) settle() {
	if g.rules.Verdict() == quorum.Undecided {
		return
	}
	select {
	case <-g.settled:
	default:
		close(g.settled)
	}
}

// giveUp counts the nodes that have not answered yet as failed.
func (g *redlockGrant) giveUp(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.nodes {
		if g.rules.Silent(i) {
			g.nodes[i].failure = err
			g.rules.Failed(i)
		}
	}
	g.settle()
}

func (g *redlockGrant) isOf(l Locker) bool { return l == Locker(g.redlock) }
