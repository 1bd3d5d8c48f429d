package parking

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// wakeLooks is how many waiters one call of the script looks at.
const wakeLooks = 100

// Woken says what a wake has done.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their queues, the first in line first; none when nobody
	// could be woken.
	Tasks []Task
	// Pending reports that the slot of the next waiter moves from one node to another, and that it will be woken in the
	// background once that is over.
	Pending bool
	// Left is how many tasks are still parked on the key.
	Left int
}

// WakeOptions says whom [Engine.Wake] wakes. The zero value wakes one.
type WakeOptions struct {
	// Leaver is the task that gives the key back, or has taken it, and whose own entry is removed; none when zero.
	Leaver Task
	// Most is how many waiters are woken at most; 1 when zero, at most 100.
	Most int
}

// Wake moves the next waiter of key that can run to the head of its queue: call it when the key has been given back. A
// waiter that is gone or whose deadline has passed leaves the line; those of a paused queue keep their places and are
// passed over, and so are those of a queue that no server works on, once this Queue has seen that; one that its timer
// has brought back already tries the key by itself. When there are only waiters of such queues, the first of them is
// put at the head of its queue, to run as soon as that is served. A waiter that is pending already is moved if it is
// near an end of the list, and else comes by itself: the wake goes on.
//
// Wake makes one call to Redis, and another for each hundred waiters that are gone; on a Cluster four to six when it
// wakes one, and one in the background. When it fails the waiters' own timers bring them back, as they do when the
// worker of a task that was woken crashes. While others wait, and this Queue is open, it looks after half a second
// whether a task that was woken has come. One that was deleted or archived, or has not been fetched, is replaced by the
// next that can run, in the latter case by one of another queue.
func (e *Engine) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	return e.wakeNow(ctx, waiter{key: key}, opts, nil)
}

// WakeTask moves this very waiter of key to the head of its queue, whoever is before it: Tasks of the result has it
// then. It does nothing when t does not wait for key, and when t is gone it leaves the line. Nobody is woken in its
// place; only if it was woken, others wait and it is gone after half a second, as with [Engine.Wake], the one whose
// [Engine.Join] it is then.
//
// When it fails t stays in line, or its own timer brings it back.
func (e *Engine) WakeTask(ctx context.Context, key string, t Task) (Woken, error) {
	return e.wakeNow(ctx, waiter{key: key, task: t}, WakeOptions{}, nil)
}

// KeyWake is a wake for one of several keys.
type KeyWake struct {
	Key string
	WakeOptions
}

// KeyWoken is what a [KeyWake] has done, or why it failed.
type KeyWoken struct {
	Woken
	Err error
}

// WakeAll does for each of several keys what [Engine.Wake] does, and returns what came of each, in their order. All of
// them together make one call to Redis; on a Cluster as many, one after another, as the one that takes longest.
func (e *Engine) WakeAll(ctx context.Context, wakes []KeyWake) []KeyWoken {
	calls := make([]call, len(wakes))
	for i, w := range wakes {
		calls[i] = e.call(waiter{key: w.Key}, w.WakeOptions, nil)
	}
	return e.wakeAll(ctx, calls)
}

// waiter is whom a wake is for.
type waiter struct {
	key  string
	task Task // the next in line when zero
}

// call is one wake. An entry is empty when there is none.
type call struct {
	who                   waiter
	waiters, leaver, only string
	// that were woken before and have not come: the wake passes over the waiters of their queues
	late []Task
	held []string // queues whose waiters are passed over, as nobody would fetch them
	// that these queues are served again: the first in line is put there for then, when no other can run
	hope bool
	most int
}

func (e *Engine) call(who waiter, opts WakeOptions, late []Task) call {
	c := call{
		who: who, waiters: WaitersKey(who.key), late: late, most: min(max(opts.Most, 1), wakeLooks),
		hope: len(late) == 0,
	}
	if opts.Leaver != (Task{}) {
		c.leaver = opts.Leaver.Entry()
	}
	if who.task != (Task{}) {
		c.only = who.task.Entry()
		return c
	}
	c.held = e.knownUnserved()
	for _, t := range late {
		c.held = append(c.held[:len(c.held):len(c.held)], t.Queue)
	}
	return c
}

// wakeNow makes one wake.
func (e *Engine) wakeNow(ctx context.Context, who waiter, opts WakeOptions, late []Task) (Woken, error) {
	w := e.wakeAll(ctx, []call{e.call(who, opts, late)})[0]
	return w.Woken, w.Err
}

// wakeAll makes several wakes at once, has them looked after, and tells who listens whom they woke, also those that
// failed after that.
func (e *Engine) wakeAll(ctx context.Context, calls []call) []KeyWoken {
	all := make([]KeyWoken, len(calls))
	if e.steps {
		var wakes sync.WaitGroup
		for i, c := range calls {
			wakes.Go(func() { all[i].Woken, all[i].Err = e.wakeInSteps(ctx, c) })
		}
		wakes.Wait()
	} else {
		e.wakeAtOnce(ctx, calls, all)
	}
	for i, w := range all {
		for _, t := range w.Tasks {
			if e.woken != nil {
				e.woken(t)
			}
		}
		if w.Err != nil {
			all[i].Err = fmt.Errorf("delayqueue: wake the next task: %w", w.Err)
			continue
		}
		all[i].Pending = e.follow(calls[i], w.Woken) && w.Pending
	}
	return all
}

// wakeAtOnce runs the script for each call, and again for those that have no answer yet. It looks at each waiter once.
func (e *Engine) wakeAtOnce(ctx context.Context, calls []call, all []KeyWoken) {
	now, offsets := time.Now().UnixNano(), make([]int, len(calls))
	open := make([]int, len(calls))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		scripts := make([]scriptCall, len(open))
		for n, i := range open {
			c := calls[i]
			args := []any{c.leaver, c.only, now, offsets[i], wakeLooks, c.most, number(c.hope)}
			scripts[n] = scriptCall{wakeScript, []string{c.waiters, e.index}, append(args, anys(c.held)...)}
		}
		replies, again := e.pipeline(ctx, scripts), open[:0]
		for n, i := range open {
			r := replyOf(replies[n])
			outcome, left := r.text(), r.number()
			if r.err == nil && outcome == "more" {
				offsets[i] = left
				again = append(again, i)
				continue
			}
			all[i] = KeyWoken{Woken{Tasks: tasksOf(r.texts(len(r.rest))), Left: left}, r.err}
		}
		open = again
	}
}
