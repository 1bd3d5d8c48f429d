package ends

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/subscription"
)

var (
	//go:embed lua/await.lua
	awaitSource string

	awaitScript = redis.NewScript(awaitSource)
)

const (
	// pollEach is the time between two looks at a task for whose end somebody waits.
	pollEach = time.Second
	// earlyPoll is that while the subscription may not have begun, which is so for earlyFor after the first wait.
	earlyPoll = pollEach / 20
	earlyFor  = pollEach
	// awaitedFor is how long the flag of a queue lives after a look.
	awaitedFor = 10 * pollEach
	// looksAtOnce is how many tasks are looked at in one round trip.
	looksAtOnce = 256
)

// Errors of a wait.
var (
	ErrClosed = errors.New("ends: it is closed")
	// ErrGone reports that a task does not exist.
	ErrGone = errors.New("ends: there is no such task")
)

// Outcome is the end of a task.
type Outcome struct {
	End
	Message string
	Result  []byte
	// ByServer says that a server of asynq has archived the task, and not a person.
	ByServer bool
}

// Waiters are the callers of this process that wait for tasks to end. They are safe for
// concurrent use.
type Waiters struct {
	client  redis.UniversalClient
	oneNode bool
	channel string
	hints   *subscription.Subscription

	mu      sync.Mutex
	closed  bool
	started time.Time                          // when the first caller came
	waiting map[[2]string]map[*waiter]struct{} // by queue and ID
	due     map[*waiter]struct{}               // to be looked at, because there was a notice
	noticed chan struct{}                      // has a value when due is not empty
	end     chan struct{}
	loop    sync.WaitGroup
}

// waiter is a caller.
type waiter struct {
	queue, id string
	retention time.Duration
	seen      time.Time     // when the task last existed and had not ended; zero during the caller's own look, which is the first
	missed    bool          // there was a notice during that
	looked    time.Time     // when it was last looked at; only the loop uses it
	err       error         // of the last look
	ended     chan answered // has room for one
}

type answered struct {
	Outcome
	err error
}

// NewWaiters returns Waiters on the Redis of the tasks. hints is a subscription on it. Both are still the caller's.
func NewWaiters(client redis.UniversalClient, hints *subscription.Subscription) *Waiters {
	_, oneNode := client.(*redis.Client)
	return &Waiters{
		client: client, oneNode: oneNode, channel: "railtoken:ended:" + rand.Text(), hints: hints,
		waiting: map[[2]string]map[*waiter]struct{}{}, due: map[*waiter]struct{}{},
		noticed: make(chan struct{}, 1), end: make(chan struct{}),
	}
}

// Wait returns the end of a task. accept is called with its message before the wait begins, and may refuse it. The error matches
// ErrGone if there is no such task; ErrClosed after Close.
//
// A task that is gone during the wait has completed if its retention may be over, and was deleted otherwise.
func (w *Waiters) Wait(ctx context.Context, queue, id string, accept func(message string) error) (Outcome, error) {
	if err := w.start(); err != nil {
		return Outcome{}, err
	}
	c := &waiter{queue: queue, id: id, looked: time.Now(), ended: make(chan answered, 1)}
	if !w.add(c) { // before the first look, or a notice would find nobody
		return Outcome{}, ErrClosed
	}
	defer w.drop(c)
	reply, err := awaitScript.Run(ctx, w.client, keysOf(queue, id), w.args(id)...).Slice()
	state, message := stateOf(reply)
	if err == nil && state == "gone" {
		var moved string
		if moved, err = w.moved(ctx, queue, id); moved != "" {
			w.move(c, moved)
			reply, err = awaitScript.Run(ctx, w.client, keysOf(moved, id), w.args(id)...).Slice()
			state, message = stateOf(reply)
		}
	}
	switch {
	case err != nil:
		return Outcome{}, err
	case state == "gone":
		return Outcome{}, ErrGone
	}
	if err := accept(message); err != nil {
		return Outcome{}, err
	}
	if o, ok := outcomeOf(reply); ok {
		return o, nil
	}
	w.exists(c, message)
	select {
	case a := <-c.ended:
		return a.Outcome, a.err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.err != nil {
			return Outcome{}, fmt.Errorf("%w; the last look at the task failed: %w", context.Cause(ctx), c.err)
		}
		return Outcome{}, context.Cause(ctx)
	case <-w.end:
		return Outcome{}, ErrClosed
	}
}

// exists notes that a task has not ended yet.
func (w *Waiters) exists(c *waiter, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.retention, c.seen = asynqwire.ReadMessage(message).Retention, time.Now()
	if c.missed {
		w.due[c] = struct{}{}
		w.hint()
	}
}

// keysOf and args return the keys and arguments of await.lua.
func keysOf(queue, id string) []string {
	return []string{asynqwire.Hash(queue, id), AwaitedKey(queue), asynqwire.Archived(queue)}
}

func (w *Waiters) args(id string) []any { return []any{id, w.channel, awaitedFor.Milliseconds()} }

func stateOf(reply []any) (state, message string) {
	if len(reply) > 0 {
		state, _ = reply[0].(string)
	}
	if len(reply) > 1 {
		message, _ = reply[1].(string)
	}
	return state, message
}

// outcomeOf reads the reply of await.lua. ok is false if the task has not ended.
func outcomeOf(reply []any) (o Outcome, ok bool) {
	if len(reply) < 5 {
		return o, false
	}
	text := func(i int) string { s, _ := reply[i].(string); return s }
	o = Outcome{End: End{State: State(text(0))}, Message: text(1)}
	if result := text(2); result != "" {
		o.Result = []byte(result)
	}
	at, err := strconv.ParseFloat(text(4), 64)
	if err == nil && o.State == Archived {
		o.ByServer = ArchivedByServer(o.Message, int64(at))
		if told, cause := parseEnded(text(3)); told == int64(at) {
			o.Cause = cause
		}
	}
	return o, true
}

// start begins to listen and to look.
func (w *Waiters) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return ErrClosed
	case !w.started.IsZero():
		return nil
	}
	if _, err := w.hints.Follow(w.channel, w.heard); err != nil {
		return ErrClosed
	}
	w.started = time.Now()
	w.loop.Go(w.look)
	return nil
}

// heard notes a notice, which names the hash of a task.
func (w *Waiters) heard(hash string) {
	if at := strings.Index(hash, asynqwire.Namespace); at >= 0 {
		if queue, id, ok := asynqwire.TaskAt(hash[at:]); ok {
			w.notice(queue, id)
		}
	}
}

func (w *Waiters) notice(queue, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.waiting[[2]string{queue, id}] {
		w.due[c] = struct{}{}
		w.hint()
	}
}

// hint has the loop look.
func (w *Waiters) hint() {
	select {
	case w.noticed <- struct{}{}:
	default:
	}
}

// add adds a caller. It reports false after Close.
func (w *Waiters) add(c *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := [2]string{c.queue, c.id}
	if w.waiting[name] == nil {
		w.waiting[name] = map[*waiter]struct{}{}
	}
	w.waiting[name][c] = struct{}{}
	w.hint()
	return !w.closed
}

func (w *Waiters) drop(c *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
}

// remove removes a caller. It is called with the mutex.
func (w *Waiters) remove(c *waiter) {
	delete(w.due, c)
	name := [2]string{c.queue, c.id}
	delete(w.waiting[name], c)
	if len(w.waiting[name]) == 0 {
		delete(w.waiting, name)
	}
}

// look looks at tasks until Close: at once after a notice, and every pollEach. It rests while nobody waits.
func (w *Waiters) look() {
	timer := time.NewTimer(pollEach)
	defer timer.Stop()
	for {
		some, again := w.takeDue()
		if len(some) > 0 {
			w.lookAt(some)
			continue
		}
		var tick <-chan time.Time
		if again > 0 {
			timer.Reset(again)
			tick = timer.C
		}
		select {
		case <-w.end:
			return
		case <-w.noticed:
		case <-tick:
		}
	}
}

// takeDue returns callers whose tasks are to be looked at, or else when to ask again; zero while nobody waits.
func (w *Waiters) takeDue() (some []*waiter, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.due {
		if len(some) == looksAtOnce {
			return some, 0
		}
		delete(w.due, c)
		if c.missed = c.seen.IsZero(); !c.missed {
			some = append(some, c)
		}
	}
	if len(some) > 0 || len(w.waiting) == 0 {
		return some, 0
	}
	each := pollEach
	if leasing.Since(w.started) < earlyFor {
		each = earlyPoll
	}
	for _, callers := range w.waiting {
		for c := range callers {
			if len(some) < looksAtOnce && !c.seen.IsZero() && leasing.Since(c.looked) >= each {
				c.looked = time.Now() // a look that fails is not repeated at once
				some = append(some, c)
			}
		}
	}
	return some, each / 4
}

// lookAt looks at tasks in one round trip.
func (w *Waiters) lookAt(some []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	replies := make([]*redis.Cmd, len(some))
	_, _ = w.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, c := range some {
			replies[i] = awaitScript.EvalSha(ctx, p, keysOf(c.queue, c.id), w.args(c.id)...)
		}
		return nil
	}) // each reply has its own error
	for i, c := range some {
		if rediswire.Says(replies[i].Err(), rediswire.NoScript) {
			replies[i] = awaitScript.Eval(ctx, w.client, keysOf(c.queue, c.id), w.args(c.id)...)
		}
		reply, err := replies[i].Slice()
		state, _ := stateOf(reply)
		gone := err == nil && state == "gone"
		if gone {
			var moved string
			if moved, err = w.moved(ctx, c.queue, c.id); moved != "" {
				w.move(c, moved)
				w.notice(moved, c.id)
				continue
			}
		}
		w.note(c, reply, gone, err)
	}
}

// note notes what a look has found.
func (w *Waiters) note(c *waiter, reply []any, gone bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.looked, c.err = time.Now(), err
	o, ended := outcomeOf(reply)
	var a answered
	switch {
	case err != nil:
		return
	case gone && leasing.Since(c.seen) >= c.retention:
		a.err = ErrGone
	case gone:
		a.State = Deleted
	case ended:
		a.Outcome = o
	default:
		c.seen = c.looked
		return
	}
	w.remove(c) // it is answered once
	c.ended <- a
}

// Close ends all waits with ErrClosed.
func (w *Waiters) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.mu.Unlock()
	close(w.end)
	w.loop.Wait()
}
