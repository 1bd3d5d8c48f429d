package line

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// wakeLooks is how many waiters one call of wake.lua checks.
const wakeLooks = 100

// Woken is the result of a wake.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their queues, in order; empty when none could run.
	Tasks []Task
	// Pending reports that the next waiter's slot moves between nodes of a Cluster: it is woken in the background once
	// the slot has arrived.
	Pending bool
	// Left is how many tasks still wait for the key.
	Left int
	// Head is the head of the key's sequence if [Engine.WakeNext] has not woken it, because it is not parked; else zero.
	Head Task
	// Lost and Begun say of Head what they say of the first task of a [Front].
	Lost, Begun bool

	gone bool // a task that was to be woken cannot run any more
}

// WakeOptions says which waiters [Engine.Wake] wakes. The zero value wakes the next one.
type WakeOptions struct {
	// Leaver is the task that releases the key, or has taken it, and whose own entry is removed; none when zero.
	Leaver Task
	// Most is how many waiters are woken at most; 1 when zero, at most 100.
	Most int
}

// Wake moves the next waiter of key that can run to the head of its queue. Call it when the key is released.
//
// A waiter that is gone, or whose deadline has passed, is removed. Waiters of a paused queue, or of a queue that is
// known to have no server, keep their positions and are skipped. If there are only such waiters, the first is put at
// the head of its queue, and runs as soon as that queue is served. Waiters of a queue that is known to starve under
// StrictPriority are skipped while another waiter can run. A waiter that its timer has brought back tries the
// key by itself. A waiter that is pending is moved if it is near an end of its list; otherwise it comes by itself, and
// the wake goes to the next.
//
// Wake makes one call to Redis, and one more for each hundred waiters that are gone; on a Cluster four to six, and two
// in the background. When it fails, the waiters' own timers bring them back, as they do when the worker of a woken task
// crashes. If others wait and the Engine is open, it checks half a second later whether a woken task has come. A task
// that was deleted or archived, or that no server has fetched, is replaced by the next waiter that can run; in the
// latter case by one of another queue.
func (e *Engine) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	return e.wakeNow(ctx, wakeTarget{key: key}, opts, nil)
}

// WakeTask moves this waiter of key to the head of its queue, even if others stand before it: Tasks of the result then
// has it. It does nothing when t does not wait for key. When t is gone, or its deadline has passed, it is removed, and
// the task that is first by [Engine.Join] is woken in its place. The Engine does the same if t was woken, others wait,
// and t is gone after half a second.
//
// When it fails, t keeps waiting, or its own timer brings it back.
func (e *Engine) WakeTask(ctx context.Context, key string, t Task) (Woken, error) {
	return e.wakeNow(ctx, wakeTarget{key: key, task: t}, WakeOptions{}, nil)
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

// WakeAll does for each of several keys what [Engine.Wake] does, and returns the results in their order. Together they
// make one call to Redis; on a Cluster as many in a row as the longest of them.
func (e *Engine) WakeAll(ctx context.Context, wakes []KeyWake) []KeyWoken {
	calls := make([]call, len(wakes))
	for i, w := range wakes {
		calls[i] = e.call(wakeTarget{key: w.Key}, w.WakeOptions, nil)
	}
	return e.wakeAll(ctx, calls)
}

// wakeTarget says which waiter a wake is for.
type wakeTarget struct {
	key  string
	task Task // the next waiter when zero
}

// call is one wake. Its entries are empty when there is none.
type call struct {
	target                wakeTarget
	waiters, leaver, only string
	// late are tasks that were woken before and have not come: the wake skips the waiters of their queues.
	late []Task
	held []string // queues whose waiters are skipped, because no server would fetch them
	// starved is how many of them, the last ones, are skipped only if another waiter can run: their turn comes by itself.
	starved int
	// hope says that the queues in held may be served again: when no other waiter can run, the first one is put at the
	// head of its queue for then.
	hope bool
	most int
}

func (e *Engine) call(target wakeTarget, opts WakeOptions, late []Task) call {
	c := call{
		target: target, waiters: WaitersKey(target.key), late: late, most: min(max(opts.Most, 1), wakeLooks),
	}
	if opts.Leaver != (Task{}) {
		c.leaver = opts.Leaver.Entry()
	}
	if target.task != (Task{}) {
		c.only = target.task.Entry()
		return c
	}
	for _, t := range late {
		c.held = append(c.held, t.Queue)
	}
	unserved, starved := e.knownUnserved()
	c.held, c.starved, c.hope = append(c.held, unserved...), starved, starved == 0 && len(late) == 0
	return c
}

// withStarved returns the call without its leaver that follows when no waiter of another queue than the starved ones can
// run: it wakes one of those.
func (c call) withStarved() call {
	c.held, c.starved, c.leaver, c.hope = c.held[:len(c.held)-c.starved], 0, "", len(c.late) == 0
	return c
}

// wakeNow makes one wake. If the task that it is for is gone, the first one of the sequence is woken.
func (e *Engine) wakeNow(ctx context.Context, target wakeTarget, opts WakeOptions, late []Task) (Woken, error) {
	for {
		w := e.wakeAll(ctx, []call{e.call(target, opts, late)})[0]
		if w.Err != nil || target.task == (Task{}) || !w.gone {
			return w.Woken, w.Err
		}
		left, err := e.Front(ctx, target.key)
		if err != nil || len(left.Next) == 0 || left.Next[0] == target.task {
			return w.Woken, err
		}
		target.task = left.Next[0]
	}
}

// wakeAll makes several wakes at once, has them checked later, and reports the tasks that they woke, also those of
// wakes that failed afterwards.
func (e *Engine) wakeAll(ctx context.Context, calls []call) []KeyWoken {
	all := e.wakeEach(ctx, calls)
	for i, w := range all {
		if calls[i].starved > 0 && w.Err == nil && len(w.Tasks) == 0 && !w.Pending && w.Left > 0 {
			w = e.wakeEach(ctx, []call{calls[i].withStarved()})[0]
			all[i] = w
		}
		e.held.Woke(calls[i].target.key, len(w.Tasks))
		for _, t := range w.Tasks {
			if e.woken != nil {
				e.woken(t)
			}
		}
		if w.Err != nil {
			all[i].Err = fmt.Errorf("delayqueue: wake the next task: %w", w.Err)
			continue
		}
		all[i].Pending = e.followUp(calls[i], w.Woken) && w.Pending
	}
	return all
}

// wakeEach makes several wakes at once.
func (e *Engine) wakeEach(ctx context.Context, calls []call) []KeyWoken {
	all := make([]KeyWoken, len(calls))
	if !e.steps {
		e.wakeAtOnce(ctx, calls, all)
		return all
	}
	var wakes sync.WaitGroup
	for i, c := range calls {
		wakes.Go(func() { all[i].Woken, all[i].Err = e.wakeInSteps(ctx, c) })
	}
	wakes.Wait()
	return all
}

// wakeAtOnce runs wake.lua for each call, and again for those that have no answer yet. It checks each waiter once.
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
			args := []any{c.leaver, c.only, now, offsets[i], wakeLooks, c.most, number(c.hope), owedAfter.Milliseconds()}
			scripts[n] = scriptCall{wakeScript, []string{c.waiters, e.index, e.owed()}, append(args, anys(c.held)...)}
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
			all[i] = KeyWoken{Woken{Tasks: tasksOf(r.texts(len(r.rest))), Left: left, gone: outcome == "gone"}, r.err}
		}
		open = again
	}
}
