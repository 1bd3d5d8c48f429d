// Package pipeline sends the script calls of many goroutines to one Redis server, in pipelines and batches. It soon
// gives up on a server that does not answer (docs/design.md, 3.3 and 3.8).
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server that has answered within recent will most likely answer at once. A caller that waits for it on its own
// goroutine does not notice that its context ends, so it waits for shortWait at most; then the outcome is unknown.
const (
	recent    = 5 * time.Millisecond
	shortWait = 250 * time.Millisecond
)

// maxPipeline bounds the calls in one pipeline, so that the first of them are answered soon.
const maxPipeline = 128

// Options configures a [Server].
type Options struct {
	// Leaders is how many pipelines may be under way at the same time. Calls may overtake each other, so a call that must
	// follow another one has to wait for its answer. Zero is for clients of several servers: then each call is sent on its
	// own.
	Leaders int

	// Least bounds how many joint calls ([Script.Joint]) wait while pipelines are under way. Fewer than those have on
	// average, and fewer than Least, are not sent beside them, because they cost nearly as much as many. When zero, none wait.
	Least int

	// Crowd has the Server wait with joint calls for others of the Crowd, too. It requires one leader. When nil, there are none.
	Crowd *Crowd

	// Timeout bounds one pipeline once it is sent, because others wait for it. After a timeout, the calls that are queued
	// behind it fail with [ErrNotSent]. This requires a client with ContextTimeoutEnabled.
	Timeout time.Duration

	// Blocked, if not nil, is called before each Send, which fails with its error.
	Blocked func() error

	// Patience, if not zero, is how long the server may take to answer a pipeline, or longer if it usually does, because a
	// busy machine is not a hanging server. After that, [Call.Late] is called for all calls, queued newcomers fail with
	// [ErrNotSent], and Send refuses calls until there is an answer. After a failure, Send refuses calls for a pause that
	// grows with each failure. Patience requires one leader.
	Patience time.Duration
}

// ErrNotSent is the error of a call that the server will never receive.
var ErrNotSent = errors.New("not sent")

// Server makes calls to one Redis server. While as many pipelines as leaders are under way, calls are queued, and then
// sent together: first those that release or renew, then newcomers (see [Script.ForNewcomers]). A queued call is not
// sent if its caller has given it up, so that overload leaves no work behind. It is safe for concurrent use.
type Server struct {
	client  redis.UniversalClient
	opts    Options
	prompt  bool // the client keeps deadlines
	several bool // the calls are for several slots

	answers sync.Pool // of chan struct{}, for callers that wait

	mu             sync.Mutex
	underWay       int // pipelines
	sent           int // calls in them
	unanswered     int // of these
	queue          queue
	idle           chan struct{} // closed when nothing is under way; nil while Settle does not wait
	unbatchedUntil time.Time
	answeredAt     time.Time // when the last answer came

	health    health
	pipelined []*Call // the pipeline under way, with Patience
	watching  bool    // a look at it is due
}

// New returns a Server for the server to which client connects.
func New(client redis.UniversalClient, opts Options) *Server {
	s := &Server{client: client, opts: opts}
	switch c := client.(type) {
	case *redis.Client:
		s.prompt = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.prompt = c.Options().ContextTimeoutEnabled
	}
	s.prompt = s.prompt && opts.Timeout > 0
	return s
}

// Run makes the call and returns the answer. When ctx ends first, Run returns at once, or within 250 ms if the server
// hangs just after an answer. A queued call is then withdrawn: the server never receives it, and the error also matches
// [ErrNotSent]. Without leaders, a call that waits for a connection is not sent either, but the error does not tell.
func (s *Server) Run(ctx context.Context, c *Call) (reply any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	if ctx.Done() == nil && s.alone(ctx, c, s.bounded, false) || s.prompt && s.alone(ctx, c, s.shortly, true) {
		return c.Reply, c.Err
	}
	answer := s.enqueue(ctx, c)
	select {
	case <-answer:
		s.answers.Put(answer)
		return c.Reply, c.Err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.state {
	case answered:
		return c.Reply, c.Err
	case queued:
		s.queue.withdraw(c)
		return nil, notSent(ctx.Err())
	case sent:
		c.answer = nil
	case fresh, withdrawn:
	}
	return nil, ctx.Err()
}

// notSent is the error of a call that was never sent.
func notSent(cause error) error { return fmt.Errorf("%w: %w", ErrNotSent, cause) }

// Finish makes the call and waits for the answer, even after ctx has ended. It costs less than Run, because its
// goroutine sends the call itself if no pipeline is under way. It takes twice the Timeout at most. If the client does
// not keep deadlines, Finish is the same as Run.
func (s *Server) Finish(ctx context.Context, c *Call) (reply any, err error) {
	if !s.prompt {
		return s.Run(ctx, c)
	}
	ctx = context.Background()
	if s.alone(ctx, c, s.bounded, false) {
		return c.Reply, c.Err
	}
	answer := s.enqueue(ctx, c)
	<-answer
	s.answers.Put(answer)
	return c.Reply, c.Err
}

// Send makes the call on another goroutine and returns at once. After an error the server never receives the call.
// Otherwise the call's done function is called later, without any lock of the Server held.
func (s *Server) Send(c *Call) error {
	if s.opts.Blocked != nil {
		if err := s.opts.Blocked(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Patience > 0 {
		if err := s.health.refuse(time.Now()); err != nil {
			return err
		}
	}
	s.start(context.Background(), c)
	return nil
}

// Withdraw takes back a call that was made by Send, and reports whether that was in time. If so, the server never
// receives the call, and done is not called.
func (s *Server) Withdraw(c *Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.withdraw(c)
}

// Settle waits until nothing is queued or under way, or until patience has passed.
func (s *Server) Settle(patience time.Duration) {
	s.mu.Lock()
	if s.underWay == 0 {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// mayLead reports whether a call, or what is queued if c is nil, may be sent beside what is under way. The caller holds
// the mutex.
func (s *Server) mayLead(c *Call) bool {
	switch {
	case s.underWay == 0 && s.opts.Crowd != nil:
		queued, joint := s.queue.size(), !s.queue.urgent()
		if c != nil {
			queued, joint = queued+1, c.command.batch().isJoint()
		}
		return !joint || s.opts.Crowd.lets(s, queued, s.opts.Least)
	case s.underWay == 0 || s.underWay >= s.opts.Leaders:
		return s.underWay == 0
	}
	least := min(s.opts.Least, s.sent/s.underWay)
	if c != nil {
		return least <= 1 || !c.command.batch().isJoint()
	}
	return s.queue.size() >= least || s.queue.urgent()
}

// alone makes the call on its caller's goroutine if a leader is free and nothing is queued, and reports whether it did.
// With soon, the server must also have answered so recently that it will most likely do so at once. limit bounds ctx.
func (s *Server) alone(ctx context.Context, c *Call, limit func(context.Context) context.Context, soon bool) bool {
	s.mu.Lock()
	if s.opts.Leaders != 0 && (s.queue.size() > 0 || !s.mayLead(c)) || soon && time.Since(s.answeredAt) >= recent {
		s.mu.Unlock()
		return false
	}
	s.underWay++
	s.sent++
	s.unanswered++
	s.opts.Crowd.began(s, 1)
	s.mu.Unlock()
	s.one(limit(ctx), c)
	s.opts.Crowd.ended(s)
	defer s.opts.Crowd.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent--
	s.unanswered--
	s.note(c.Err)
	if s.queue.size() > 0 && s.opts.Leaders != 0 {
		go s.drain() // what has queued up
		return true
	}
	s.finished()
	return true
}

// enqueue makes a call, and returns a channel that gets a value once it is answered. The receiver puts the channel back
// into answers.
func (s *Server) enqueue(ctx context.Context, c *Call) chan struct{} {
	answer, ok := s.answers.Get().(chan struct{})
	if !ok {
		answer = make(chan struct{}, 1)
	}
	c.answer = answer
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start(ctx, c)
	return answer
}

// start queues a call for the next pipeline. Without leaders it sends the call on its own, unless ctx ends before the
// client has a connection for it. The caller holds the mutex.
func (s *Server) start(ctx context.Context, c *Call) {
	if s.opts.Leaders == 0 { // for several servers, each of which would need the source of a script
		c.state = sent
		s.underWay++
		s.unanswered++
		go s.single(ctx, c)
		return
	}
	s.queue.add(c)
	if s.mayLead(nil) {
		s.underWay++
		go s.drain()
	}
}

// single sends a call on its own.
func (s *Server) single(ctx context.Context, c *Call) {
	s.one(s.bounded(ctx), c)
	s.deliver([]*Call{c})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished()
}

// note records the time of an answer. The caller holds the mutex.
func (s *Server) note(err error) {
	if err == nil {
		s.answeredAt = time.Now()
	}
}

// finished records that a pipeline or a single call has ended. The caller holds the mutex.
func (s *Server) finished() {
	s.underWay--
	if s.underWay == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// drain sends what is queued, until nothing is.
func (s *Server) drain() {
	GrowStack()
	for calls := s.take(0); len(calls) > 0; calls = s.take(len(calls)) {
		ctx, cancel := s.limited()
		if len(calls) == 1 {
			s.one(ctx, calls[0])
		} else {
			s.pipeline(ctx, calls)
		}
		cancel()
		s.opts.Crowd.ended(s)
		s.deliver(calls)
		runtime.Gosched()
		s.opts.Crowd.next()
	}
}

// take returns the calls of the next pipeline, for a leader that has answered n calls. If there are none, or too few, the
// leader is done.
func (s *Server) take(n int) []*Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent -= n
	s.underWay--
	leads := s.queue.size() > 0 && s.mayLead(nil)
	s.underWay++
	if !leads {
		s.finished()
		return nil
	}
	calls := s.queue.take(s.share())
	s.opts.Crowd.began(s, len(calls))
	s.sent += len(calls)
	s.unanswered += len(calls)
	if s.opts.Patience > 0 {
		s.health.sent(time.Now())
		s.pipelined = calls
		s.watch(s.opts.Patience / looks)
	}
	return calls
}

// leastShare is the smallest number of calls that leaders do not divide among themselves.
const leastShare = 8

// share bounds the calls of the next pipeline. Each leader takes an equal part of the calls that are unanswered or
// queued, so that the server works on one pipeline while this process works on another. With Least, few calls cost
// nearly as much as many, and a leader takes all. The caller holds the mutex.
func (s *Server) share() int {
	if s.opts.Leaders < 2 || s.opts.Least > 0 {
		return maxPipeline
	}
	fair := (s.unanswered + s.queue.size() + s.opts.Leaders - 1) / s.opts.Leaders
	return min(max(fair, leastShare), maxPipeline)
}

// until is a context with a deadline but without a timer: the client looks only at the deadline.
type until struct {
	context.Context
	deadline time.Time
}

// Deadline returns when the context ends.
func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// bounded returns a context that lasts for the Timeout from now. Waiting for a connection ends with ctx; a call that is
// under way does not.
func (s *Server) bounded(ctx context.Context) context.Context {
	if s.opts.Timeout == 0 {
		return ctx
	}
	return until{ctx, time.Now().Add(s.opts.Timeout)}
}

// limited returns a context for a pipeline. That of a Cluster is sent again while no connection to a server can be had: only the end of the
// context ends that.
func (s *Server) limited() (context.Context, context.CancelFunc) {
	if _, cluster := s.client.(*redis.ClusterClient); cluster && s.opts.Timeout > 0 {
		return context.WithTimeout(context.Background(), s.opts.Timeout)
	}
	return s.bounded(context.Background()), func() {}
}

// shortly returns a context with the deadline of ctx or an earlier one, for a caller that does not notice the end of
// ctx.
func (s *Server) shortly(ctx context.Context) context.Context {
	end := time.Now().Add(min(shortWait, s.opts.Timeout))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return until{ctx, end} // waiting for a connection ends with ctx
}
