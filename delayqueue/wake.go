package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	wakeLooks   = 100             // waiters that one call of the script looks at
	wakeTimeout = 2 * time.Second // bounds one attempt in the background
)

// Woken says what a wake has done.
type Woken struct {
	// Tasks are the waiters that were moved to the heads of their queues, the first in line first; none when nobody could be woken.
	Tasks []Task
	// Pending reports that the slot of the next waiter moves from one node to another, and that it will be woken in the background once that is over.
	Pending bool
	// Left is how many tasks are still parked on the key.
	Left int
}

// First returns the first of the Tasks; zero when there is none.
func (w Woken) First() Task {
	if len(w.Tasks) == 0 {
		return Task{}
	}
	return w.Tasks[0]
}

// WakeOptions says whom [Queue.Wake] wakes. The zero value wakes one.
type WakeOptions struct {
	// Leaver is the task that gives the key back, or has taken it, and whose own entry is removed; none when zero.
	Leaver Task
	// Most is how many waiters are woken at most; 1 when zero, at most 100.
	Most int
}

// Wake moves the next waiter of key that can run to the head of its queue: call it when the key has been given back. A waiter that is gone or whose
// deadline has passed leaves the line; those of a paused queue keep their places and are passed over, and so are those of a queue that no server works
// on, once this Queue has seen that; one that its timer has brought back already tries the key by itself. When there are only waiters of such queues, the first of them is put at the head of its queue, to run as soon as that is served.
// A waiter that is pending already is moved if it is near an end of the list, and else comes by itself: the wake goes on.
//
// Wake makes one call to Redis, and another for each hundred waiters that are gone; on a Cluster four to six when it wakes one, and one in the background. When it
// fails the waiters' own timers bring them back, as they do when the worker of a task that was woken crashes. While others wait, and this
// Queue is open, it looks after half a second whether a task that was woken has come. One that was deleted or archived, or has not been fetched, is
// replaced by the next that can run, in the latter case by one of another queue.
func (q *Queue) Wake(ctx context.Context, key string, opts WakeOptions) (Woken, error) {
	return q.wakeNow(ctx, waiter{key: key}, opts, nil)
}

// WakeTask moves this very waiter of key to the head of its queue, whoever is before it: Tasks of the result has it then. It does nothing
// when t does not wait for key, and when t is gone it leaves the line. Nobody is woken in its place; only if it was woken, others wait and it is gone
// after half a second, as with [Queue.Wake], the one whose [Queue.Turn] it is then.
//
// When it fails t stays in line, or its own timer brings it back.
func (q *Queue) WakeTask(ctx context.Context, key string, t Task) (Woken, error) {
	return q.wakeNow(ctx, waiter{key: key, task: t}, WakeOptions{}, nil)
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

// WakeAll does for each of several keys what [Queue.Wake] does, and returns what came of each, in their order. All of them together make one call to
// Redis; on a Cluster two more than the one that takes longest.
func (q *Queue) WakeAll(ctx context.Context, wakes []KeyWake) []KeyWoken {
	calls := make([]call, len(wakes))
	for i, w := range wakes {
		calls[i] = q.call(waiter{key: w.Key}, w.WakeOptions, nil)
	}
	all := make([]KeyWoken, len(wakes))
	for i, r := range q.wakeEach(ctx, calls) {
		all[i].Woken, all[i].Err = q.woke(waiter{key: wakes[i].Key}, r.outcome, r.woken, r.err, nil)
	}
	return all
}

// waiter is whom a wake is for.
type waiter struct {
	key  string
	task Task // the next in line when zero
}

// wakeNow wakes, and when that must wait until the slot of the waiter has arrived, goes on in the background. late are tasks that
// were woken before and have not come: the wake passes over the waiters of their queues.
func (q *Queue) wakeNow(ctx context.Context, who waiter, opts WakeOptions, late []Task) (Woken, error) {
	outcome, woken, err := q.wake(ctx, q.call(who, opts, late))
	return q.woke(who, outcome, woken, err, late)
}

// woke sees to what must follow from the outcome of a wake.
func (q *Queue) woke(who waiter, outcome string, woken Woken, err error, late []Task) (Woken, error) {
	later := outcome == "moving"
	if err == nil && !later {
		q.follow(who, woken, late)
	}
	if err != nil || !later {
		return woken, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return woken, nil
	}
	woken.Pending = true
	q.busy[who]++
	if q.busy[who] == 1 {
		q.pending.Go(func() { q.wakeMoving(who) })
	}
	return woken, nil
}

// wakeMoving tries the wakes of a waiter again until its slot has arrived: one goroutine for it, however many wakes there are.
func (q *Queue) wakeMoving(who waiter) {
	slow := backoff.NewExponentialBackOff(backoff.WithInitialInterval(movingFirst), backoff.WithMaxInterval(movingMost),
		backoff.WithMaxElapsedTime(movingLimit))
	for {
		ctx, cancel := context.WithTimeout(q.closing, wakeTimeout)
		outcome, woken, err := q.wake(ctx, q.call(who, WakeOptions{}, nil))
		cancel()
		wait := time.Duration(0)
		switch {
		case err != nil || outcome == "moving":
			wait = slow.NextBackOff()
		default:
			q.repaired(who.key, woken)
			q.follow(who, woken, nil)
			if !q.settle(who, outcome == "woken") {
				return
			}
		}
		if wait == backoff.Stop || !q.pause(wait) {
			q.settle(who, false)
			q.log.Warn("waking the next task failed; its timer will bring it back", "error", cmp.Or(err, errNotWoken))
			return
		}
	}
}

// pause waits, and reports whether the Queue is still open then.
func (q *Queue) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-q.closing.Done():
		return false
	case <-timer.C:
		return true
	}
}

// settle notes that one wake is done, or that nobody is left to be woken, and reports whether there are more to do.
func (q *Queue) settle(who waiter, one bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[who]--
	if !one || q.busy[who] <= 0 {
		delete(q.busy, who)
		return false
	}
	return true
}

var errNotWoken = fmt.Errorf("delayqueue: the slot of the next waiter moved for %v", movingLimit)

// call is one wake. An entry is empty when there is none.
type call struct {
	registry, leaver, only string
	held                   []string // queues whose waiters are passed over, as nobody would fetch them
	hope                   bool     // that these queues are served again: the first in line is put there for then, when no other can run
	most                   int
}

func (q *Queue) call(who waiter, opts WakeOptions, late []Task) call {
	c := call{registry: registry(who.key), most: min(max(opts.Most, 1), wakeLooks), hope: len(late) == 0}
	if opts.Leaver != (Task{}) {
		c.leaver = opts.Leaver.member()
	}
	if who.task != (Task{}) {
		c.only = who.task.member()
		return c
	}
	c.held = q.knownUnserved()
	for _, t := range late {
		c.held = append(c.held[:len(c.held):len(c.held)], t.Queue)
	}
	return c
}

// wake makes one attempt, and tells who listens whom it woke, even when it failed after that.
func (q *Queue) wake(ctx context.Context, c call) (outcome string, w Woken, err error) {
	r := q.wakeEach(ctx, []call{c})[0]
	return r.outcome, r.woken, r.err
}

// woken is what a call has done.
type woken struct {
	outcome string
	woken   Woken
	err     error
}

// wakeEach makes one attempt for each call, all at once.
func (q *Queue) wakeEach(ctx context.Context, calls []call) []woken {
	var all []woken
	if q.steps {
		all = q.wakeSideBySide(ctx, calls)
	} else {
		all = q.wakeAtOnce(ctx, calls)
	}
	for i := range all {
		for _, t := range all[i].woken.Tasks {
			if q.woken != nil {
				q.woken(t)
			}
		}
		if all[i].err != nil {
			all[i].outcome, all[i].err = "", fmt.Errorf("delayqueue: wake the next task: %w", all[i].err)
		}
	}
	return all
}

// wakeAtOnce runs the script for each call, and again for those that have no answer yet. It looks at each waiter once.
func (q *Queue) wakeAtOnce(ctx context.Context, calls []call) []woken {
	all, now := make([]woken, len(calls)), time.Now().UnixNano()
	offsets, open := make([]int, len(calls)), make([]int, len(calls))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		scripts := make([]scriptCall, len(open))
		for n, i := range open {
			c := calls[i]
			args := []any{c.leaver, c.only, now, offsets[i], wakeLooks, c.most, number(c.hope)}
			scripts[n] = scriptCall{wakeScript, []string{c.registry, q.index}, append(args, anys(c.held)...)}
		}
		replies, again := q.pipeline(ctx, scripts), open[:0]
		for n, i := range open {
			reply, err := replies[n].Slice()
			r := &all[i]
			if r.err = err; err == nil {
				r.outcome, r.woken, r.err = parseWoken(reply)
			}
			if r.err == nil && r.outcome == "more" {
				offsets[i], r.woken.Left = r.woken.Left, 0
				again = append(again, i)
			}
		}
		open = again
	}
	return all
}

// number returns the argument of a script that says yes or no.
func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// parseWoken reads the reply of the wake script.
func parseWoken(reply []any) (outcome string, w Woken, err error) {
	bad := unexpected(reply)
	if len(reply) < 2 {
		return "", w, bad
	}
	outcome, ok1 := reply[0].(string)
	left, ok2 := reply[1].(int64)
	if !ok1 || !ok2 {
		return "", w, bad
	}
	w.Left = int(left)
	for _, entry := range reply[2:] {
		member, ok := entry.(string)
		if !ok {
			return "", w, bad
		}
		t, err := parseMember(member)
		if err != nil {
			return "", w, err
		}
		w.Tasks = append(w.Tasks, t)
	}
	return outcome, w, nil
}
