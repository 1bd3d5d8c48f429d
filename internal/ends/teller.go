package ends

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/keep.lua
	keepSource string

	claimScript = redis.NewScript(claimSource)
	keepScript  = redis.NewScript(keepSource)
)

const (
	// callbacks is how many run at a time, and mostQueued how many ends of this process wait in memory for one. All others are
	// left to the next look.
	callbacks  = 16
	mostQueued = 1024
	// againFirst and againMost are the pauses before a callback that has failed is called again, and triesMost is how often it
	// is called.
	againFirst = time.Second
	againMost  = time.Minute
	triesMost  = 10
	// callTimeout bounds a call to Redis.
	callTimeout = 2 * time.Second
)

// Options configures a [Teller].
type Options struct {
	Client redis.UniversalClient
	// Archived is called for tasks that were archived or deleted without success, and Completed for the others. When nil, nobody
	// hears of them. After an error the end is told again.
	Archived, Completed func(ctx context.Context, m Mark, result []byte) error
	// Found returns how a task has ended that another program has archived. byServer says that a server of asynq has.
	Found func(message string, result []byte, byServer bool) End
	// GaveUp is called when an end is told no more.
	GaveUp func(m Mark, err error)
	Logger *slog.Logger
}

// Teller tells ends. It is safe for concurrent use.
type Teller struct {
	Options

	ctx    context.Context // of callbacks
	cancel context.CancelFunc
	stop   chan struct{} // closed when no more marks are taken over
	hints  chan struct{} // has a value when there are marks for which there was no room

	mu      sync.Mutex
	queues  []string // of whose tasks the ends are told; none before Start
	closed  bool
	queued  []claim
	running map[*claim]struct{}
	workers sync.WaitGroup
	loops   sync.WaitGroup
	calls   int // workers that run
}

// claim is a mark that this process may tell until a time.
type claim struct {
	text  string // of the mark
	mark  Mark
	until time.Time
}

// NewTeller returns a Teller. It takes over no marks before Start.
func NewTeller(o Options) *Teller {
	t := &Teller{Options: o, stop: make(chan struct{}), hints: make(chan struct{}, 1), running: map[*claim]struct{}{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Hears reports whether somebody is to hear of tasks that end so. t may be nil.
func (t *Teller) Hears(s State) bool { return t.callback(s) != nil }

func (t *Teller) callback(s State) func(context.Context, Mark, []byte) error {
	switch {
	case t == nil:
		return nil
	case s == Completed:
		return t.Completed
	default:
		return t.Archived
	}
}

// Start begins to look for marks of tasks of some queues that nobody tells. Further calls do nothing. t may be nil.
func (t *Teller) Start(queues []string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues != nil || t.closed {
		return
	}
	t.queues = queues
	t.loops.Go(t.sweep)
	t.loops.Go(t.keep)
}

// Tell tells an end that this process has just marked. It began to do so at a time.
func (t *Teller) Tell(text string, m Mark, began time.Time) {
	t.add(claim{text, m, began.Add(Unclaimed)})
}

// add has a mark told, unless too many wait for that.
func (t *Teller) add(c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.queued) >= mostQueued {
		t.hint()
		return
	}
	t.queued = append(t.queued, c)
	if t.calls < callbacks {
		t.calls++
		t.workers.Go(t.work)
	}
}

// hint has the next look for marks follow at once. It may come in vain.
func (t *Teller) hint() {
	select {
	case t.hints <- struct{}{}:
	default:
	}
}

// next returns the next mark to tell; nil when there is none.
func (t *Teller) next() *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queued) > 0 && t.ctx.Err() == nil {
		c := t.queued[0]
		t.queued = t.queued[1:]
		if leasing.Until(c.until) < margin { // another server may have it in a moment
			continue
		}
		t.running[&c] = struct{}{}
		return &c
	}
	t.queued = nil
	t.calls--
	return nil
}

func (t *Teller) work() {
	for c := t.next(); c != nil; c = t.next() {
		t.tell(c)
		t.mu.Lock()
		delete(t.running, c)
		t.mu.Unlock()
	}
}

// tell calls back, and removes the mark, or has it told again.
func (t *Teller) tell(c *claim) {
	result, err := t.result(c.mark)
	if err != nil { // that is no call: the mark is taken over again
		t.wrong(t.ctx, err)
		return
	}
	if err = t.call(c.mark, result); err != nil && c.mark.Tries+1 >= triesMost {
		t.GaveUp(c.mark, err)
		err = nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), callTimeout)
	defer cancel()
	if err == nil {
		if err = t.Client.ZRem(ctx, c.mark.Key(), c.text).Err(); err != nil {
			t.Logger.WarnContext(ctx, "the mark of an end that was told is left; it will be told again", "task", c.mark.name(), "error", err)
		}
		return
	}
	t.Logger.WarnContext(ctx, "the callback for the end of a task has failed; it is called again", "task", c.mark.name(),
		"try", c.mark.Tries+1, "error", err)
	again := c.mark
	again.Tries++
	_ = keepScript.Run(ctx, t.Client, []string{c.mark.Key()}, c.text, pause(again.Tries).Milliseconds(), again.String()).Err() // or it is taken over soon
}

// pause returns the time before a callback is called again that has failed so often.
func pause(tries int) time.Duration {
	return min(againFirst<<min(tries-1, 16), againMost)
}

// result returns what the task has left behind.
func (t *Teller) result(m Mark) ([]byte, error) {
	if m.State == Deleted {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	result, err := t.Client.HGet(ctx, asynqwire.Hash(m.Queue, m.ID), asynqwire.ResultField).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return result, err
}

// call calls back. A panic is an error.
func (t *Teller) call(m Mark, result []byte) (err error) {
	returned := false
	done := make(chan struct{})
	go func() { // runtime.Goexit would end a worker
		defer close(done)
		defer func() {
			if x := recover(); x != nil {
				err = fmt.Errorf("panic: %v\n%s", x, debug.Stack())
			} else if !returned {
				err = errors.New("the callback has ended its goroutine")
			}
		}()
		err = t.callback(m.State)(t.ctx, m, result)
		returned = true
	}()
	<-done
	return err
}

func (m Mark) name() string { return m.Queue + "/" + m.ID }

// keep keeps the marks whose callbacks run, until all have returned after a Close.
func (t *Teller) keep() {
	tick := time.NewTicker(claimed / 4)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		all := make([]*claim, 0, len(t.running))
		for c := range t.running {
			all = append(all, c)
		}
		t.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
		for _, c := range all {
			_ = keepScript.Run(ctx, t.Client, []string{c.mark.Key()}, c.text, claimed.Milliseconds(), "").Err() // the next time
		}
		cancel()
	}
}

// Close ends the looks for marks, and waits for callbacks until a deadline; then it ends their context. What was not told has
// its mark, and is told by another server, or by the next. t may be nil.
func (t *Teller) Close(deadline time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.closed = true
	t.mu.Unlock()
	close(t.stop)
	done := make(chan struct{})
	go func() {
		t.workers.Wait()
		close(done)
	}()
	timer := time.NewTimer(leasing.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Logger.Error("callbacks for the ends of tasks have not returned; these ends are told again")
	}
	t.cancel()
	looked := make(chan struct{})
	go func() {
		t.loops.Wait()
		close(looked)
	}()
	timer.Reset(callTimeout / 2) // a client without ContextTimeoutEnabled may wait longer
	select {
	case <-looked:
	case <-timer.C:
	}
}

// failing reports whether Redis cannot be reached, which others log.
func failing(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return !reply || rediswire.IsMoving(err) || rediswire.IsUnserved(err)
}
