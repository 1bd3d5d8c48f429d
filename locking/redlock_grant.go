package locking

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking/internal/guard"
	"github.com/railtoken/railtoken/locking/internal/node"
	"github.com/railtoken/railtoken/locking/internal/quorum"
)

// commitPause is after which a commit is tried again that had no answer.
const commitPause = 20 * time.Millisecond

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

// errNodeTimeout is the failure of a node that has not answered within NodeTimeout.
var errNodeTimeout = errors.New("no answer in time")

// redlockGrant is one acquisition on a [Redlock]: it carries calls to the nodes and answers to the rules of package quorum.
type redlockGrant struct {
	redlock *Redlock
	owner   string
	names   []string // business keys
	keys    []string // lock, fence counter and interest mark of each
	opts    Options
	request node.Command // the acquire call
	goodbye node.Command // the release call, for nodes that hold the committed tokens

	mu    sync.Mutex
	rules *quorum.Acquisition
	nodes []grantNode
	held  *HeldError // of the refusals, the one that lasts longest

	settled   chan struct{} // closed once the verdict is known
	committed chan struct{} // closed once tokens are known
	tokens    []int64       // committed: the last one of each key's block
	waiting   bool          // a further step of the commit is due after commitPause
	ended     bool          // given back: nothing is committed any more, and late grants are released
	began     time.Time
	enough    func() bool   // whether whoever waits for releases can go on; nil when nobody does
	round     chan struct{} // closed then
	alone     bool          // nobody waits for the releases any more: what is unclear is sent again in the background
	pause     time.Duration // before the next time; 0 while none is due
	expiry    time.Time     // when the locks have run out anyway
	contended bool
}

// grantNode is what a grant knows of its calls to one node.
type grantNode struct {
	asked    bool  // the acquire call has been sent
	answered bool  // and has its answer, or never will
	failure  error // why the last call had no answer
	sent     time.Time
	retried  bool // after the server has shown another identity
	release  releaseState
}

// releaseState is how far the release on one node is.
type releaseState int

const (
	kept    releaseState = iota
	leaving              // the call is on its way, or waits for the answer to the acquire call
	gone                 // nothing of this owner is left there
	taken                // so, and somebody else has had the key since
	unclear              // the call had no answer, or was not made
)

func newRedlockGrant(r *Redlock, names, keys []string, opts Options) *redlockGrant {
	g := &redlockGrant{
		redlock: r, owner: newOwner(opts.Label, opts.Block, time.Now()), names: names, keys: keys, opts: opts,
		rules: quorum.New(len(r.nodes)), nodes: make([]grantNode, len(r.nodes)),
		settled: make(chan struct{}), committed: make(chan struct{}), began: time.Now(),
	}
	last := r.clock.Propose(time.Now().UnixMicro(), int64(opts.Block))
	g.request = acquireCommand(r.acquire, keys, g.owner, r.opts.FenceTTL, last, opts, r.opts.Guard == GuardStrict)
	return g
}

// acquire asks every node, and returns as soon as the outcome is certain. The error says why the lock is not there.
func (g *redlockGrant) acquire(ctx context.Context) (quorum.Verdict, error) {
	g.mu.Lock()
	calls := make([]node.Call, len(g.nodes))
	for i := range g.nodes {
		g.ask(i, &calls[i])
	}
	g.settle()
	g.mu.Unlock()

	timer := time.NewTimer(g.redlock.opts.NodeTimeout)
	defer timer.Stop()
	select {
	case <-g.settled:
	case <-timer.C:
		g.giveUp(errNodeTimeout)
	case <-ctx.Done():
		g.giveUp(ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	verdict := g.rules.Verdict()
	switch {
	case verdict == quorum.Won:
		g.commit()
		return verdict, nil
	case ctx.Err() != nil:
		return quorum.Unreachable, &OpError{Op: "acquire", Keys: g.names, Err: ctx.Err()}
	case verdict == quorum.Unreachable:
		return verdict, &OpError{Op: "acquire", Keys: g.names, Err: g.failure()}
	default:
		return verdict, g.held
	}
}

// ask sends the acquire call to node i. The caller holds the mutex.
func (g *redlockGrant) ask(i int, call *node.Call) {
	n, request := g.redlock.nodes[i], g.request
	if g.redlock.opts.Guard == GuardStrict {
		g.nodes[i].sent = time.Now()
		request = request.With(n.guard.Identity()) // it is the last one
	}
	if err := n.calls.Send(call.Of(request, i, g.answered)); err != nil {
		g.fail(i, err)
		return
	}
	g.nodes[i].asked = true
}

// fail notes that node i will not answer. The caller holds the mutex.
func (g *redlockGrant) fail(i int, err error) {
	g.nodes[i].answered = true
	g.nodes[i].failure = err
	g.rules.Failed(i)
}

// answered takes in the answer of a node to the acquire call, also one that comes late.
func (g *redlockGrant) answered(c *node.Call) {
	i := c.Node
	g.mu.Lock()
	defer g.mu.Unlock()
	err := c.Err
	if err == nil && g.redlock.opts.Guard == GuardStrict {
		var again bool
		if again, err = g.otherServer(i, c.Reply); again {
			return
		}
	}
	var tops []int64
	var held *HeldError
	var value string
	if err == nil {
		tops, held, value, err = parseAcquire(c.Reply, g.names)
	}
	switch {
	case err != nil:
		g.fail(i, err)
	case held != nil:
		g.redlock.clock.See(held.Holder.Fence + parseOwner(value).block)
		if g.held == nil || outlasts(held.Holder.Remaining, g.held.Holder.Remaining) {
			g.held = held
		}
		g.nodes[i].answered = true
		g.rules.Held(i, value)
	default:
		for _, top := range tops {
			g.redlock.clock.See(top)
		}
		g.nodes[i].answered = true
		g.rules.Granted(i, tops)
	}
	g.settle()
	if g.ended {
		if g.nodes[i].release == leaving {
			g.release(i, &node.Call{})
		}
		return
	}
	if g.rules.Verdict() == quorum.Won {
		g.commit()
	}
}

// outlasts reports whether one remaining time is longer than another. A negative one has no end.
func outlasts(a, b time.Duration) bool { return b >= 0 && (a < 0 || a > b) }

// otherServer looks whether the strict script has run in the server that was vetted. If another one has answered that may vote
// too, the call is sent once more, and again is true.
func (g *redlockGrant) otherServer(i int, reply any) (again bool, err error) {
	n := g.redlock.nodes[i]
	facts, other, err := guard.ParseReply(reply, g.nodes[i].sent, time.Now())
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
	g.ask(i, &node.Call{})
	if g.nodes[i].answered {
		return false, g.nodes[i].failure
	}
	return true, nil
}

// settle lets acquire return once the verdict is known. The caller holds the mutex.
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

// failure returns the errors of the nodes. The caller holds the mutex.
func (g *redlockGrant) failure() error {
	var errs []error
	again := false
	for i, n := range g.nodes {
		if n.failure == nil {
			continue
		}
		errs = append(errs, nodeError(i, g.redlock.nodes[i].addr, n.failure))
		again = again || !permanent(n.failure)
	}
	switch {
	case len(errs) == 0:
		return fmt.Errorf("%w: %w", ErrUnavailable, errNodeTimeout)
	case again:
		return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
	default:
		return errors.Join(errs...)
	}
}

// nodeError says which node has failed. A refusal of the guard says so itself.
func nodeError(i int, addr string, err error) error {
	refusal, ok := errors.AsType[*guard.RefusedError](err)
	switch {
	case !ok:
		return fmt.Errorf("node %d (%s): %w", i, addr, err)
	case refusal.Reason == guard.Unreachable:
		return refusal
	default:
		return quarantine{refusal}
	}
}

// quarantine is a refusal of a server that can be reached. It matches [ErrQuarantined].
type quarantine struct{ *guard.RefusedError }

func (q quarantine) Is(target error) bool {
	return target == ErrQuarantined || q.RefusedError.Is(target)
}

// permanent reports whether err says that a server will not do this at all, so that trying again does not help.
func permanent(err error) bool {
	if errors.Is(err, guard.ErrRefused) { // it is looked at again
		return false
	}
	reply, ok := errors.AsType[redis.Error](err)
	return ok && !isTransient(reply.Error()) || errors.Is(err, errReply) || isClosed(err)
}

// isClosed reports whether err says that the client was closed.
func isClosed(err error) bool {
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, net.ErrClosed)
}

// commit goes on with making the tokens certain (DESIGN 3.4). The caller holds the mutex.
func (g *redlockGrant) commit() {
	if g.ended || g.tokens != nil {
		return
	}
	step := g.rules.Commit()
	if step.Done {
		g.tokens = step.Tokens
		close(g.committed)
		return
	}
	if step.Lost {
		g.ended = true
		close(g.committed)
		return
	}
	for _, i := range step.Renew {
		g.rules.Renewing(i)
		err := g.renew(i, step.Tokens, g.opts.TTL, func(ok bool, err error) {
			if err != nil {
				g.commitLater()
				return
			}
			g.commit()
		})
		if err != nil {
			g.rules.RenewFailed(i)
			g.commitLater()
		}
	}
}

// commitLater calls commit after a pause. The caller holds the mutex.
func (g *redlockGrant) commitLater() {
	if g.waiting || g.ended || time.Since(g.began) > g.opts.TTL { // from then on the lease's own renewals go on with it
		return
	}
	g.waiting = true
	time.AfterFunc(commitPause, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting = false
		g.commit()
	})
}

// renew sends the renew call to node i; then is called with its outcome while the mutex is held. The caller holds it, too.
func (g *redlockGrant) renew(i int, tokens []int64, ttl time.Duration, then func(ok bool, err error)) error {
	args := make([]any, 0, 3+len(tokens))
	args = append(args, g.owner, ms(ttl), ms(g.redlock.opts.FenceTTL))
	if own := g.rules.Counters(i); own != nil { // one that has granted late may be ahead; it is ours all the same
		tokens = slices.Clone(tokens)
		for k := range tokens {
			tokens[k] = max(tokens[k], own[k])
		}
	}
	for _, token := range tokens {
		args = append(args, token)
	}
	return g.redlock.nodes[i].calls.Send(node.NewCall(func(c *node.Call) {
		g.mu.Lock()
		defer g.mu.Unlock()
		lost, err := 0, c.Err
		if err == nil {
			lost, err = parseRenew(c.Reply, len(g.names))
		}
		if err != nil {
			g.nodes[i].failure = err
			g.rules.RenewFailed(i)
		} else {
			g.rules.Renewed(i, tokens, lost == 0)
		}
		then(lost == 0, err)
	}, renewScript, g.keys, args...))
}

// Block returns how many tokens in a row are reserved.
func (g *redlockGrant) Block() int { return g.opts.Block }

// Fence returns the first token of a key's block, once a quorum of the nodes holds it.
func (g *redlockGrant) Fence(ctx context.Context, i int) (int64, error) {
	select {
	case <-g.committed:
	default:
		select {
		case <-g.committed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	if g.tokens == nil {
		return 0, &LostError{Keys: g.names, Reason: LossTaken}
	}
	return g.tokens[i] - int64(g.opts.Block) + 1, nil
}

// Renew extends the lock on a majority of the nodes.
func (g *redlockGrant) Renew(ctx context.Context, ttl time.Duration) error {
	g.mu.Lock()
	tokens := g.tokens
	if tokens == nil {
		tokens = g.rules.Commit().Tokens
	}
	if tokens == nil { // every node has lost it
		g.mu.Unlock()
		return &LostError{Keys: g.names, Reason: LossTaken}
	}
	poll, done := quorum.NewPoll(len(g.nodes)), make(chan struct{})
	count := func(ok bool, err error) {
		if poll.Outcome() != quorum.Open {
			return
		}
		switch {
		case err != nil:
			poll.Failed()
		case ok:
			poll.Yes()
		default:
			poll.No()
		}
		if poll.Outcome() != quorum.Open {
			close(done)
		}
	}
	for i := range g.nodes {
		if g.rules.Elsewhere(i) {
			count(false, nil)
			continue
		}
		err := g.renew(i, tokens, ttl, func(ok bool, err error) {
			count(ok, err)
			g.commit()
		})
		if err != nil {
			g.nodes[i].failure = err
			count(false, err)
		}
	}
	g.mu.Unlock()

	timer := time.NewTimer(g.redlock.opts.NodeTimeout)
	defer timer.Stop()
	var ended error
	select {
	case <-done:
	case <-timer.C:
		ended = errNodeTimeout
	case <-ctx.Done():
		ended = ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch poll.Outcome() {
	case quorum.Done:
		return nil
	case quorum.Lost:
		return &LostError{Keys: g.names, Reason: LossTaken}
	default:
		return &OpError{Op: "renew", Keys: g.names, Err: errors.Join(ended, g.failure())}
	}
}

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
	if err := g.redlock.nodes[i].calls.Send(call.Of(g.leave(g.rules.Counters(i)), i, g.left)); err != nil {
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
	command := releaseScript.Command(g.keys, 1+len(counters))
	command.Add(g.owner)
	for _, counter := range counters {
		command.Add(counter)
	}
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
