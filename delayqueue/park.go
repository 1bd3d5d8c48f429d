package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// idleRegistry is how long at least a registry outlives the last task that joined it. A parked task joins anew each time its
// timer ends, and the registry outlives two of the longest timers, so a registry in use does not run out; this removes what tasks that
// were deleted by hand leave behind.
const idleRegistry = 48 * time.Hour

// Bounds limits the waiting of a task. The zero value sets no limit: a task waits until it gets its key.
type Bounds struct {
	// Conflicts is how many times a task may be refused before its handler runs; no limit when zero.
	Conflicts int
	// Age is how long after its first conflict a task may wait again; no limit when zero.
	Age time.Duration
	// Waiters is how many tasks may wait for one key; no limit when zero. Tasks that were deleted or archived by hand may count for some
	// time: each task that finds the waiters full has a few of them looked at.
	Waiters int
	// Total is how many tasks may wait for all keys together, of all workers on this Redis; no limit when zero. Tasks that were deleted
	// or archived by hand count as they do for Waiters.
	Total int
}

// Validate returns every fault of the bounds at once, or nil.
func (b Bounds) Validate() error {
	var errs []error
	if b.Conflicts < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Conflicts is %d: it cannot be negative", b.Conflicts))
	}
	if b.Age < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Age is %v: it cannot be negative", b.Age))
	}
	if b.Waiters < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Waiters is %d: it cannot be negative", b.Waiters))
	}
	if b.Total < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Total is %d: it cannot be negative", b.Total))
	}
	return errors.Join(errs...)
}

// Bound names a bound that a task has reached.
type Bound string

// The bounds.
const (
	NoBound        Bound = ""
	ConflictsBound Bound = "conflicts"
	AgeBound       Bound = "age"
	WaitersBound   Bound = "waiters"
	TotalBound     Bound = "total"
)

// ErrGone reports that asynq knows no such task: it was deleted while it ran. Nothing waits for it.
var ErrGone = errors.New("delayqueue: the task is gone")

// Conflict is what a task has met so far since its handler last ran.
type Conflict struct {
	// Count is how often it was refused.
	Count int
	// First is when it was refused first, by the clock of Redis; zero when it never was.
	First time.Time
}

// Place is where a parked task stands.
type Place struct {
	Conflict
	// Waiters is how many tasks wait for the key, this one included.
	Waiters int
	// Ahead is how many of them stand before it.
	Ahead int
	// Bound is the bound that the task has reached: then it is not among the waiters, and no wake finds it. NoBound when it waits.
	Bound Bound
}

// ParkOptions is what [Queue.Park] must know of a task. The zero value is a first attempt without bounds.
type ParkOptions struct {
	// Attempt is the task's retry count: its conflicts are counted anew when its handler has run.
	Attempt int
	// Bounds ends the waiting.
	Bounds Bounds
	// Before is the conflicts that the task met before it was moved from another queue.
	Before Conflict
	// Look is how long after it was parked the task would look for itself if it were the next in line. Its timer may be longer, by
	// [Place].Ahead: when a wake makes it the next, its timer is shortened to this from then on. Not at all when zero.
	Look time.Duration
}

// Park notes that a task waits for key: from now on [Queue.Wake] finds it. A task waits for one key at a time; if it was
// woken for another key, which it can no longer give back, the next waiter of that key is woken.
//
// A task at the bound on conflicts or age has its conflicts forgotten. One that finds the waiters full keeps its count: it has no place, and
// may try again.
//
// Park does not move the task. Its handler must try the key once more after Park, because it may have been given back just
// before, and then return the error that makes asynq move the task to its retry set. The error matches [ErrGone] when the
// task has been deleted.
//
// It makes one call to Redis, on a Cluster three as a rule. The cost does not grow with the number of waiters.
func (q *Queue) Park(ctx context.Context, t Task, key string, opts ParkOptions) (Place, error) {
	place, err := q.park(ctx, t, key, opts)
	if err != nil {
		return Place{}, fmt.Errorf("delayqueue: park task %s: %w", t, err)
	}
	return place, nil
}

func (q *Queue) park(ctx context.Context, t Task, key string, opts ParkOptions) (Place, error) {
	bounds, before := opts.Bounds, opts.Before
	first := int64(0)
	if !before.First.IsZero() {
		first = before.First.UnixMicro()
	}
	look := opts.Look.Milliseconds()
	conflict := []any{opts.Attempt, bounds.Conflicts, bounds.Age.Microseconds(), before.Count, first}
	ttl := max(idleRegistry, 2*bounds.Age, 2*opts.Look).Milliseconds()
	if q.steps {
		return q.parkInSteps(ctx, t, registry(key), append(conflict, look), bounds, ttl)
	}
	args := append(append([]any{t.member()}, conflict...), bounds.Waiters, bounds.Total, ttl, look)
	reply, err := parkScript.Run(ctx, q.client, []string{registry(key), t.hash(), q.index}, args...).Slice()
	if err != nil {
		return Place{}, err
	}
	place, swallowed, err := parsePlace(reply)
	if err == nil {
		q.passOn(ctx, swallowed)
	}
	return place, err
}

// passOn wakes the next waiter of a line in place of a task that was woken from it and now waits for another key.
func (q *Queue) passOn(ctx context.Context, registry string) {
	key, ok := keyOf(registry)
	if !ok {
		return
	}
	if _, err := q.Wake(ctx, key, WakeOptions{}); err != nil {
		q.log.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "error", err)
	}
}

// parsePlace reads the reply of the park script.
func parsePlace(reply []any) (p Place, swallowed string, err error) {
	bad := unexpected(reply)
	if len(reply) != 6 {
		return p, "", bad
	}
	bound, ok1 := reply[0].(string)
	conflicts, ok2 := reply[1].(int64)
	first, ok3 := reply[2].(string)
	waiters, ok4 := reply[3].(int64)
	swallowed, ok5 := reply[4].(string)
	us, err := strconv.ParseInt(first, 10, 64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || err != nil {
		return p, "", bad
	}
	if bound == "gone" {
		return p, "", ErrGone
	}
	ahead, _ := reply[5].(string)
	p = Place{Waiters: int(waiters), Bound: Bound(bound)}
	p.Count, p.First = int(conflicts), time.UnixMicro(us)
	p.Ahead, _ = strconv.Atoi(ahead) // "" at a bound
	return p, swallowed, nil
}
