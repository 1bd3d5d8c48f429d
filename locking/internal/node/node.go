// Package node sends the script calls of many goroutines to one Redis server together, and is quick to give up on a server that
// does not answer (DESIGN 3.3 and 3.8).
package node

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxBatch bounds the calls of one pipeline, so that a server answers the first of them soon.
const maxBatch = 128

// Options configures a [Node].
type Options struct {
	// Leaders is how many pipelines may be on their way at the same time. With one, calls reach the server in the order in
	// which they were made, as far as they have a key in common. Zero is for clients of several servers: every call goes by itself.
	Leaders int

	// Timeout bounds one pipeline, since others wait for it. The client must have ContextTimeoutEnabled for that.
	Timeout time.Duration

	// Blocked is asked before each Send: an error refuses it. Nil for no such question.
	Blocked func() error

	// Patience, when it is not zero, makes Send refuse calls at once while the server has not answered for so long, and for a
	// growing pause after a failure.
	Patience time.Duration
}

// Node is one server. A caller that finds no pipeline on its way sends its own call itself; calls that arrive meanwhile
// queue up, and go out in one pipeline. It is safe for use by many goroutines at the same time.
type Node struct {
	client redis.UniversalClient
	opts   Options
	prompt bool // the client keeps to deadlines

	mu       sync.Mutex
	inFlight int
	queue    []*Call
	idle     chan struct{} // not nil while Settle waits; closed when nothing is on its way
	health   health
	apart    time.Time // until when no calls are put together
}

// New returns a node on the server that client is connected to.
func New(client redis.UniversalClient, opts Options) *Node {
	n := &Node{client: client, opts: opts}
	if plain, ok := client.(*redis.Client); ok {
		n.prompt = plain.Options().ContextTimeoutEnabled && opts.Timeout > 0
	}
	return n
}

// state is where a call is.
type state int

const (
	queued state = iota
	sent
	answered
	withdrawn
)

// Call is one call of a script. Reply and Err are there once it is answered.
type Call struct {
	Reply any
	Err   error

	// Node is whatever the caller wants to know the call by.
	Node int

	command Command
	done    func(*Call)
	answer  chan struct{} // closed instead of calling done, for a caller that waits
	state   state         // guarded by Node.mu, except that a call which its own goroutine sends needs none
}

// NewCall returns a call of script. When it is made by [Node.Send], done is called once it is answered or has failed.
func NewCall(done func(*Call), script *Script, keys []string, args ...any) *Call {
	command := script.Command(keys, len(args))
	command.Add(args...)
	return &Call{command: command, done: done}
}

// Of makes c a call of command that is known by a number, as NewCall would.
func (c *Call) Of(command Command, node int, done func(*Call)) *Call {
	*c = Call{command: command, Node: node, done: done}
	return c
}

// Run makes the call and waits for the answer, which is also returned. When ctx ends before: a call that is still queued is
// withdrawn, so the server never sees it; for one that is on its way late is called with the answer when that comes, unless late is nil.
func (n *Node) Run(ctx context.Context, c *Call, late func(*Call)) (reply any, err error) {
	if n.alone(ctx, c) {
		return c.Reply, c.Err
	}
	answer := n.enqueue(c)
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
		c.state = withdrawn
	case sent:
		c.answer, c.done = nil, late
	case withdrawn:
	}
	return nil, ctx.Err()
}

// Finish makes the call and waits for the answer. It costs less than Run: while the call is combined with others only the node's Timeout
// bounds it, if the client keeps to deadlines.
func (n *Node) Finish(ctx context.Context, c *Call) (reply any, err error) {
	if !n.prompt {
		return n.Run(ctx, c, nil)
	}
	if !n.alone(ctx, c) {
		<-n.enqueue(c)
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
		if err := n.health.refuse(time.Now(), n.opts.Patience); err != nil {
			return err
		}
	}
	n.queue = append(n.queue, c)
	if n.inFlight < max(n.opts.Leaders, 1) {
		n.inFlight++
		go n.drain()
	}
	return nil
}

// alone makes the call on its caller's goroutine if no other one is to be waited for, and reports whether it has.
func (n *Node) alone(ctx context.Context, c *Call) bool {
	if !n.lead() {
		return false
	}
	n.one(n.bounded(ctx), c)
	n.handOver()
	return true
}

// lead reports whether a caller may send its own call at once. It must call handOver afterwards.
func (n *Node) lead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opts.Leaders != 0 && (n.inFlight >= n.opts.Leaders || len(n.queue) > 0) {
		return false
	}
	n.inFlight++
	return true
}

// enqueue queues a call up for the next pipeline. The channel is closed once it is answered.
func (n *Node) enqueue(c *Call) <-chan struct{} {
	c.answer = make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, c)
	if n.opts.Leaders != 0 && n.inFlight < n.opts.Leaders {
		n.inFlight++
		go n.drain()
	}
	return c.answer
}

// handOver ends the turn of a caller that has sent its own call: another goroutine goes on with what has queued up.
func (n *Node) handOver() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) > 0 {
		go n.drain()
		return
	}
	n.landed()
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
		if len(batch) == 1 || n.opts.Leaders == 0 { // on several servers each would need the source of a script
			for _, c := range batch {
				n.one(n.bounded(context.Background()), c)
			}
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
	batch := make([]*Call, 0, min(len(n.queue), maxBatch))
	i := 0
	for ; i < len(n.queue) && len(batch) < maxBatch; i++ {
		if c := n.queue[i]; c.state == queued {
			c.state = sent
			batch = append(batch, c)
		}
	}
	rest := copy(n.queue, n.queue[i:])
	clear(n.queue[rest:])
	n.queue = n.queue[:rest]
	if len(batch) == 0 {
		n.landed()
	} else {
		n.health.sent(time.Now())
	}
	return batch
}

// deliver gives the answers of a batch to their callers.
func (n *Node) deliver(batch []*Call) {
	n.mu.Lock()
	n.health.answered(time.Now(), transportError(batch))
	for _, c := range batch {
		c.state = answered
		if c.answer != nil {
			close(c.answer)
		}
	}
	n.mu.Unlock()
	for _, c := range batch {
		if c.answer == nil && c.done != nil {
			c.done(c)
		}
	}
}

// transportError returns why a batch had no answer, or nil when the server has answered.
func transportError(batch []*Call) error {
	for _, c := range batch {
		if c.Err == nil || isReply(c.Err) {
			return nil
		}
	}
	return batch[0].Err
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

// until is a context with an earlier deadline that costs no timer: the client looks at the deadline alone.
type until struct {
	context.Context
	deadline time.Time
}

// Deadline returns when the call is given up.
func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// bounded returns ctx with the node's time-out.
func (n *Node) bounded(ctx context.Context) context.Context {
	if n.opts.Timeout == 0 {
		return ctx
	}
	deadline := time.Now().Add(n.opts.Timeout)
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		return ctx
	}
	return until{ctx, deadline}
}
