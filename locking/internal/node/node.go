// Package node sends the script calls of many goroutines to one Redis server together, and is quick to give up on a server that
// does not answer (docs/design.md, 3.3 and 3.8).
package node

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server that has answered within brisk most likely answers at once. A caller that waits for it itself, and cannot see that its context is
// cancelled meanwhile, does so for briefly at most: after that the outcome of its call is unknown.
const (
	brisk   = 5 * time.Millisecond
	briefly = 250 * time.Millisecond
)

// maxBatch bounds the calls of one pipeline, so that a server answers the first of them soon.
const maxBatch = 128

// Options configures a [Node].
type Options struct {
	// Leaders is how many pipelines may be on their way at the same time. Calls that release or renew go before
	// newcomers, so one that must not overtake another waits for its answer. Zero is for clients of several servers: every call goes by itself.
	Leaders int

	// Timeout bounds one pipeline from its sending on, since others wait for it: when it is over, so are the calls that are queued behind it,
	// with [ErrNotSent]. The client must have ContextTimeoutEnabled for that.
	Timeout time.Duration

	// Blocked is asked before each Send: an error refuses it. Nil for no such question.
	Blocked func() error

	// Patience, when it is not zero, is how long the server may take to answer a pipeline, or some times as long as it usually takes: a
	// busy machine is not a server that hangs. After it the callers of all calls are told by [Call.Late], newcomers who are still queued fail
	// with [ErrNotSent], and Send refuses calls at once until there is an answer. It does so, too, for a growing pause after a failure. It
	// is for one leader.
	Patience time.Duration
}

// ErrNotSent is the error of a call that the server has never seen and never will.
var ErrNotSent = errors.New("not sent")

// Node is one server. Calls that are made while as many pipelines as leaders are on their way queue up, and go out together: first those that
// release something, then renewals, then newcomers, who have a share (see [Script.ForNewcomers]). A call that its caller gives up while it is queued is
// never sent, so that no work is left of a crowd that has gone. It is safe for use by many goroutines at the same time.
type Node struct {
	client redis.UniversalClient
	opts   Options
	prompt bool // the client keeps to deadlines

	mu       sync.Mutex
	inFlight int
	queue    queue
	idle     chan struct{} // not nil while Settle waits; closed when nothing is on its way
	apart    time.Time     // until when no calls are put together

	answeredAt time.Time // when the server answered last

	health   health
	flying   []*Call // the pipeline on its way, if there is patience
	watching bool    // a look at it is due
}

// New returns a node on the server that client is connected to.
func New(client redis.UniversalClient, opts Options) *Node {
	n := &Node{client: client, opts: opts}
	if plain, ok := client.(*redis.Client); ok {
		n.prompt = plain.Options().ContextTimeoutEnabled && opts.Timeout > 0
	}
	return n
}

// Run makes the call and returns the answer. When ctx ends before, by its deadline or otherwise, so does Run, at once, or within 250 ms if the server
// stops just after an answer. A call that is still queued is withdrawn then: the server never sees it, and the error matches [ErrNotSent], too.
// Without leaders one that still waits for a connection is not sent either, but nobody can tell it from one that is on its way.
func (n *Node) Run(ctx context.Context, c *Call) (reply any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if ctx.Done() == nil && n.alone(n.bounded(ctx), c) {
		return c.Reply, c.Err
	}
	if n.isBrisk(time.Now()) && n.alone(n.briefly(ctx), c) {
		return c.Reply, c.Err
	}
	answer := n.enqueue(ctx, c)
	select {
	case <-answer:
		return c.Reply, c.Err
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch c.state {
	case answered:
		return c.Reply, c.Err
	case queued:
		n.queue.withdraw(c)
		return nil, notSent(ctx.Err())
	case sent:
		c.answer = nil
	case fresh, withdrawn:
	}
	return nil, ctx.Err()
}

// notSent says why a call was never sent.
func notSent(cause error) error { return fmt.Errorf("%w: %w", ErrNotSent, cause) }

// Finish makes the call and waits for the answer, whatever becomes of ctx. It costs less than Run: a caller that finds no pipeline on its way
// sends the call itself. It takes twice the node's Timeout at most, if the client keeps to deadlines; else it is Run.
func (n *Node) Finish(ctx context.Context, c *Call) (reply any, err error) {
	if !n.prompt {
		return n.Run(ctx, c)
	}
	if !n.alone(n.bounded(context.Background()), c) {
		<-n.enqueue(context.Background(), c)
	}
	return c.Reply, c.Err
}

// Send makes the call on another goroutine, and returns at once. When it returns an error the server never sees the call, and
// nothing else happens; else the call's done will be called, without any lock of the node held.
func (n *Node) Send(c *Call) error {
	if n.opts.Blocked != nil {
		if err := n.opts.Blocked(); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opts.Patience > 0 {
		if err := n.health.refuse(time.Now()); err != nil {
			return err
		}
	}
	n.start(context.Background(), c)
	return nil
}

// Withdraw takes back a call that was made by Send, and reports whether that was in time: then the server never sees it, and nothing
// else happens.
func (n *Node) Withdraw(c *Call) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queue.withdraw(c)
}

// alone makes the call on its caller's goroutine if no other one is to be waited for, and reports whether it has.
func (n *Node) alone(ctx context.Context, c *Call) bool {
	if !n.lead() {
		return false
	}
	n.one(ctx, c)
	n.handOver(c.Err)
	return true
}

// isBrisk reports whether the server has answered so lately that a caller may wait for it on its own goroutine, which costs less than another
// one to wait with.
func (n *Node) isBrisk(now time.Time) bool {
	if !n.prompt {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.answeredAt) < brisk
}

// lead reports whether a caller may send its own call at once. It must call handOver afterwards.
func (n *Node) lead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opts.Leaders != 0 && (n.inFlight >= n.opts.Leaders || !n.queue.empty()) {
		return false
	}
	n.inFlight++
	return true
}

// enqueue makes a call. The channel is closed once it is answered.
func (n *Node) enqueue(ctx context.Context, c *Call) <-chan struct{} {
	answer := make(chan struct{})
	c.answer = answer
	n.mu.Lock()
	defer n.mu.Unlock()
	n.start(ctx, c)
	return answer
}

// start queues a call up for the next pipeline, or sends it by itself, unless ctx ends before the client has a connection for it. The caller holds
// the mutex.
func (n *Node) start(ctx context.Context, c *Call) {
	if n.opts.Leaders == 0 { // on several servers, each of which would need the source of a script
		c.state = sent
		n.inFlight++
		go n.single(ctx, c)
		return
	}
	n.queue.add(c)
	if n.inFlight < n.opts.Leaders {
		n.inFlight++
		go n.drain()
	}
}

// single sends a call by itself.
func (n *Node) single(ctx context.Context, c *Call) {
	n.one(n.bounded(ctx), c)
	n.deliver([]*Call{c})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.landed()
}

// handOver ends the turn of a caller that has sent its own call: another goroutine goes on with what has queued up.
func (n *Node) handOver(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note(err)
	if !n.queue.empty() && n.opts.Leaders != 0 {
		go n.drain()
		return
	}
	n.landed()
}

// note notes whether the server has answered. The caller holds the mutex.
func (n *Node) note(err error) {
	if err == nil {
		n.answeredAt = time.Now()
	}
}

// landed ends a turn. The caller holds the mutex.
func (n *Node) landed() {
	n.inFlight--
	if n.inFlight == 0 && n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
}

// Settle waits until nothing is queued or on its way, for so long at most.
func (n *Node) Settle(patience time.Duration) {
	n.mu.Lock()
	if n.inFlight == 0 {
		n.mu.Unlock()
		return
	}
	if n.idle == nil {
		n.idle = make(chan struct{})
	}
	idle := n.idle
	n.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// drain sends what is queued, until nothing is.
func (n *Node) drain() {
	for batch := n.take(); len(batch) > 0; batch = n.take() {
		if len(batch) == 1 {
			n.one(n.bounded(context.Background()), batch[0])
		} else {
			n.pipeline(n.bounded(context.Background()), batch)
		}
		n.deliver(batch)
		runtime.Gosched()
	}
}

// take returns the next batch and marks it as sent. When there is none, it ends the turn of its caller.
func (n *Node) take() []*Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	batch := n.queue.take()
	if len(batch) == 0 {
		n.landed()
		return nil
	}
	if n.opts.Patience > 0 {
		n.health.sent(time.Now())
		n.flying = batch
		n.watch(n.opts.Patience / looks)
	}
	return batch
}

// one makes a single call.
func (n *Node) one(ctx context.Context, c *Call) {
	cmd := newOnce(ctx, c.command.args)
	_ = n.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = newOnce(ctx, c.command.eval())
		_ = n.client.Process(ctx, cmd)
	}
	c.Reply, c.Err = cmd.Result()
}

// until is a context with a deadline that costs no timer: the client looks at the deadline alone.
type until struct {
	context.Context
	deadline time.Time
}

// Deadline returns when the call is given up.
func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// bounded returns a context with the node's time-out, which begins now. Waiting for a connection ends with ctx; a call that is on its way does not.
func (n *Node) bounded(ctx context.Context) context.Context {
	if n.opts.Timeout == 0 {
		return ctx
	}
	return until{ctx, time.Now().Add(n.opts.Timeout)}
}

// briefly returns a context with the deadline of ctx, or an earlier one for a caller that cannot see the end of ctx.
func (n *Node) briefly(ctx context.Context) context.Context {
	end := time.Now().Add(min(briefly, n.opts.Timeout))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return until{ctx, end} // waiting for a connection ends with ctx
}
