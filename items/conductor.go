package items

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/itemrun"
	"github.com/railtoken/railtoken/locking"
)

const (
	// maxWave is the maximum number of items of a task that have their keys at the same time. They are more than
	// Parallel only if items run briefly, so that their keys can be asked for together: as many as run within ahead, or
	// within aheadContended once another caller has wanted a key of this run.
	maxWave        = 64
	ahead          = 25 * time.Millisecond
	aheadContended = 5 * time.Millisecond
	// linger is how long the release of an item waits for other items to end, so that they are released together. It
	// waits up to lingerMost while no keys are to be asked for and no other caller wants a key of this run.
	linger     = time.Millisecond
	lingerMost = 5 * time.Millisecond
	// saveEvery is how long a result may stay unsaved while other items run.
	saveEvery = 10 * time.Millisecond
)

// plan is what to do with the items of a task. Items are identified by their indexes.
type plan struct {
	keys     [][]string
	policy   Policy
	parallel int
	tries    int
	inOrder  bool
	work     func(ctx context.Context, i int) error
	finish   func(ctx context.Context, r Report) error // may be nil
}

// conductor runs the items of a task in one run of the task. Its fields belong to the goroutine of process. It never
// waits for the keys of an item: a refused item is tried again after the others.
type conductor struct {
	plan
	run     itemrun.Run
	store   *store
	log     *slog.Logger
	average *atomic.Int64 // how long an item runs, in ns, over all tasks of the handler

	todo    []int            // in order
	busy    map[string]bool  // the keys that items of this run have
	behind  map[string][]int // items that wait for such a key
	granted []locked         // items that have their keys and do not run yet
	running int
	ended   chan ending
	settle  []ending // items that have ended and still have their keys
	refused []refusal
	held    map[string]*locking.HeldError // the keys that were refused, until the refused items are tried again
	away    bool                          // the lock servers could not be reached

	contended bool  // another caller has wanted a key of this run
	ran       int   // how many items have ended
	broken    bool  // no further item is to begin
	err       error // that ends the run
}

// locked is an item that has its keys. keys is nil with the policy Whole.
type locked struct {
	index int
	keys  itemrun.Item
}

// ending is an item whose run has ended.
type ending struct {
	locked
	err  error
	took time.Duration
	ran  bool // it has begun
}

// refusal is an item that was refused a key.
type refusal struct {
	index int
	held  *locking.HeldError
	at    time.Time
	ran   int // how many items had ended by then
}

// begin loads the progress and lists the items that are to run.
func (c *conductor) begin(ctx context.Context) error {
	c.busy, c.behind, c.held = map[string]bool{}, map[string][]int{}, map[string]*locking.HeldError{}
	c.ended = make(chan ending, c.parallel)
	for {
		err := c.store.load(ctx)
		if err == nil {
			break
		}
		if isLasting(err) {
			return err
		}
		if err := c.run.AwaitRedis(ctx, fmt.Errorf("%w: %w", locking.ErrUnavailable, err)); err != nil {
			return err
		}
	}
	for i := range c.keys {
		switch {
		case c.store.done[i]:
		case !c.rests(i):
			c.todo = append(c.todo, i)
		case c.inOrder && c.store.noted[i].State == Failed:
			return nil // those behind it have to wait
		}
	}
	return nil
}

// rests reports whether an item does not run in this run of the task, because its result is final or it must not be
// tried again before asynq has retried the task.
func (c *conductor) rests(i int) bool {
	r, ok := c.store.noted[i]
	if !ok || r.State == Refused {
		return false
	}
	return c.isFinal(r) || r.Attempt == c.run.Attempt() || !c.run.IsLast() && time.Now().UnixMilli() < r.Due
}

// isFinal reports whether an item with this result is not tried again.
func (c *conductor) isFinal(r record) bool {
	switch r.State {
	case Skipped:
		return true
	case Failed:
		return r.Final || r.Tries >= c.tries || c.run.IsLast() && r.Attempt == c.run.Attempt()
	case Refused:
		return c.policy == GoOn
	default:
		return false
	}
}

// conduct runs items until none can run.
func (c *conductor) conduct(ctx context.Context) {
	for {
		c.start(ctx)
		wave := c.wave(ctx)
		if len(wave) == 0 && len(c.settle) == 0 {
			if c.running == 0 {
				if c.again() {
					continue
				}
				return
			}
			c.await(ctx)
			wave = c.wave(ctx)
		}
		c.turn(ctx, wave)
		if len(c.store.unsaved) > 0 && c.running > 0 && time.Since(c.store.since) >= saveEvery {
			c.saveSoon(ctx)
		}
	}
}

// halted reports whether no further item may begin.
func (c *conductor) halted(ctx context.Context) bool {
	if c.broken || c.err != nil || ctx.Err() != nil {
		return true
	}
	select {
	case <-c.run.Stopping():
		return true
	default:
		return false
	}
}

// start starts items that have their keys, as many as may run at the same time.
func (c *conductor) start(ctx context.Context) {
	if c.halted(ctx) {
		for _, item := range c.granted {
			c.settle = append(c.settle, ending{locked: item})
		}
		c.granted = nil
		return
	}
	for len(c.granted) > 0 && c.running < c.parallel {
		item := c.granted[0]
		c.granted = c.granted[1:]
		c.running++
		go c.perform(ctx, item)
	}
}

// perform runs one item.
func (c *conductor) perform(ctx context.Context, item locked) {
	end, began := ending{locked: item, ran: true, err: errGoexit}, time.Now()
	defer func() {
		if cause := recover(); cause != nil {
			end.err = fmt.Errorf("panic: %v", cause)
			c.log.ErrorContext(ctx, "an item panicked", "task", c.store.task.String(), "item", item.index,
				"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
		end.took = time.Since(began)
		c.ended <- end
	}()
	ctx = context.WithValue(ctx, indexKey{}, item.index)
	if item.keys != nil {
		lease := item.keys.Lease()
		ctx = locking.NewContext(lease.Context(ctx), lease)
	}
	end.err = c.work(ctx, item.index)
}

var errGoexit = errors.New("items: the run of the item ended its goroutine")

// wave returns the items whose keys to ask for now.
func (c *conductor) wave(ctx context.Context) (wave []int) {
	room := c.parallel - c.running - len(c.granted)
	if room <= 0 || len(c.todo) == 0 || c.halted(ctx) {
		return nil
	}
	if average := c.average.Load(); average > 0 && !c.inOrder {
		window := ahead
		if c.contended {
			window = aheadContended
		}
		room += int(min(int64(c.parallel)*int64(window)/average, maxWave))
	}
	room = min(room, max(maxWave, c.parallel)-c.running-len(c.granted))
	for len(c.todo) > 0 && len(wave) < room && !c.broken {
		i := c.todo[0]
		c.todo = c.todo[1:]
		if held := c.isHeld(i); held != nil {
			c.refuse(refusal{i, held, time.Now(), c.ran})
			continue
		}
		if key, busy := c.isBusy(i); busy {
			c.behind[key] = append(c.behind[key], i)
			continue
		}
		c.setBusy(i, true)
		wave = append(wave, i)
	}
	return wave
}

// isHeld returns the refusal that another item of this run has met for a key of this item, or nil.
func (c *conductor) isHeld(i int) *locking.HeldError {
	for _, key := range c.keys[i] {
		if held := c.held[key]; held != nil {
			return held
		}
	}
	return nil
}

// isBusy returns a key of an item that another item of this run holds.
func (c *conductor) isBusy(i int) (string, bool) {
	for _, key := range c.keys[i] {
		if c.busy[key] {
			return key, true
		}
	}
	return "", false
}

// setBusy notes that an item has its keys, or has released them. Items of this run that wait for a released key are
// next.
func (c *conductor) setBusy(i int, busy bool) {
	for _, key := range c.keys[i] {
		if busy {
			c.busy[key] = true
			continue
		}
		delete(c.busy, key)
		if waiting := c.behind[key]; len(waiting) > 0 {
			c.todo = append(slices.Clone(waiting), c.todo...)
			delete(c.behind, key)
		}
	}
}

// await waits until an item ends, and a moment longer for items that end at about the same time. It also saves results
// that are due.
func (c *conductor) await(ctx context.Context) {
	for len(c.settle) == 0 {
		var due <-chan time.Time
		if len(c.store.unsaved) > 0 {
			due = time.After(time.Until(c.store.since.Add(saveEvery)))
		}
		select {
		case end := <-c.ended:
			c.settle = append(c.settle, end)
			c.running--
		case <-due:
			c.saveSoon(ctx)
		}
	}
	began, limit := time.Now(), time.NewTimer(linger)
	defer limit.Stop()
	for c.start(ctx); c.running > 0; c.start(ctx) {
		select {
		case end := <-c.ended:
			c.settle = append(c.settle, end)
			c.running--
			continue
		case <-limit.C:
		}
		hasRoom := c.running < c.parallel && len(c.todo) > 0
		if c.contended || hasRoom || time.Since(began) >= lingerMost {
			return
		}
		limit.Reset(linger)
	}
}

// turn releases the keys of items that have ended and asks for those of a wave, all at the same time, so that the calls
// to the lock servers are batched.
func (c *conductor) turn(ctx context.Context, wave []int) {
	settled := c.settle
	c.settle = nil
	lost := make([]error, len(settled))
	answers := make([]struct {
		keys itemrun.Item
		held *locking.HeldError
		err  error
	}, len(wave))
	var all sync.WaitGroup
	for n, end := range settled {
		if end.keys != nil {
			all.Go(func() { lost[n] = end.keys.Release(ctx) })
		}
	}
	if c.policy != Whole {
		for n, i := range wave {
			all.Go(func() { answers[n].keys, answers[n].held, answers[n].err = c.run.Acquire(ctx, c.keys[i]) })
		}
	}
	all.Wait()
	for n, end := range settled {
		if end.keys != nil {
			lease := end.keys.Lease()
			c.contended = c.contended || lease.ShouldNotify() || lease.HandedOff()
		}
		c.setBusy(end.index, false)
		c.judge(ctx, end, lost[n])
	}
	var failed error
	for n, i := range wave {
		switch a := answers[n]; {
		case a.held != nil:
			c.setBusy(i, false)
			c.refuse(refusal{i, a.held, time.Now(), c.ran})
		case a.err != nil:
			c.setBusy(i, false)
			c.todo = append([]int{i}, c.todo...)
			failed = a.err
		default:
			c.granted = append(c.granted, locked{i, a.keys})
		}
	}
	if failed != nil || c.away && len(wave) > 0 {
		c.away = failed != nil
		c.err = c.run.AwaitRedis(ctx, failed)
	}
}

// refuse notes that an item was refused a key.
func (c *conductor) refuse(r refusal) {
	c.refused = append(c.refused, r)
	c.held[r.held.Key] = r.held
	c.contended = true
	c.broken = c.broken || c.inOrder
}

// again lists those refused items for another try that were refused before another item ended, and reports whether
// there are any.
func (c *conductor) again() bool {
	if c.broken || c.err != nil {
		return false
	}
	var once []refusal
	for _, r := range c.refused {
		if c.ran > r.ran {
			c.todo = append(c.todo, r.index)
		} else {
			once = append(once, r)
		}
	}
	again := len(once) < len(c.refused)
	c.refused = once
	if again {
		clear(c.held)
	}
	return again && len(c.todo) > 0
}

// judge notes the result of an item that has ended.
func (c *conductor) judge(ctx context.Context, end ending, lost error) {
	if !end.ran {
		c.todo = append(c.todo, end.index)
		return
	}
	c.ran++
	c.measure(end.took)
	err := end.err
	if lost != nil && !end.keys.Lease().Committed() {
		err = errors.Join(err, lost)
	}
	if err == nil {
		c.store.setDone(end.index)
		return
	}
	if ctx.Err() != nil {
		return // it was interrupted: this does not count
	}
	before := c.store.noted[end.index]
	r := record{
		Attempt: c.run.Attempt(),
		Result:  Result{Index: end.index, State: Failed, Tries: before.Tries + 1, Err: short(err)},
	}
	if skip, ok := errors.AsType[*skipError](err); ok {
		r.State, r.Err = Skipped, short(skip.err)
		c.store.note(r)
		return
	}
	if later, ok := errors.AsType[*retryError](err); ok {
		r.Due = time.Now().Add(later.delay).UnixMilli()
	}
	r.Final = errors.Is(err, asynq.SkipRetry)
	c.store.note(r)
	c.broken = c.broken || c.inOrder || c.policy == Whole
}

// measure adds a duration to the average. If two tasks do so at the same moment, one duration may be lost, which does
// no harm.
func (c *conductor) measure(took time.Duration) {
	average := c.average.Load()
	if average == 0 {
		average = int64(took)
	}
	c.average.Store(max(average+(int64(took)-average)/8, 1))
}

// maxErr is the maximum size of an item's error text, in bytes.
const maxErr = 200

func short(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxErr)], "")
}
