package items

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// saveEvery is how long a result may stay unsaved while other items run.
const saveEvery = 10 * time.Millisecond

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
	run     taskrun.Run
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
	keys  taskrun.Item
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
