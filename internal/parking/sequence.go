package parking

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

var (
	//go:embed lua/sequence_join.lua
	sequenceJoinSource string
	//go:embed lua/sequence_remove.lua
	sequenceRemoveSource string

	sequenceJoinScript   = redis.NewScript(sequenceJoinSource)
	sequenceRemoveScript = redis.NewScript(sequenceRemoveSource)
)

// DefaultKeep is how long a sequence is kept after the last arrival.
const DefaultKeep = 48 * time.Hour

const (
	goneBatch = 100  // tasks that are checked at once after one was found to be gone
	goneCalls = 1000 // how many batches one call checks
	frontSize = 2    // how many tasks Remove returns
	soonLooks = 3    // how many of the first tasks get a short timer from Remove
)

// SequenceKey returns the name of the sorted set of the tasks that wait for a key or hold it, in order of arrival.
func SequenceKey(key string) string { return "railtoken:sequence:{" + keys.Encode(key) + "}" }

// JoinOptions says how a task joins a sequence. The zero value is a new arrival.
type JoinOptions struct {
	// At is the position that the task had before; when zero, it is a new arrival, at the end. A task that is in the
	// sequence keeps its position.
	At time.Time
	// Keep is how long the sequence is kept after the last call for it; 48 h when zero. It must be longer than the time
	// between two runs of a task. If calls differ, the longest value counts.
	Keep time.Duration
	// Begins says that the task's run has just begun. If its timer or an operator has brought it back from its key, it
	// is not parked any more, and no wake is meant for it.
	Begins bool
	// Works says that the task begins to work as soon as it is first: if its worker dies then, it has failed.
	Works bool
}

// Position is where a task stands in a sequence.
type Position struct {
	// At is when it joined, by the clock of Redis. No two arrivals have the same At.
	At time.Time
	// Ahead is how many tasks stand before it. When it is zero the task may take the lock, and the fields below are
	// zero. Some of the tasks before it may be gone, but not the first.
	Ahead int
	// First is the first task of the sequence.
	First Task
	// FirstState is its state in asynq's words: active, pending, scheduled, retry or aggregating.
	FirstState string
	// FirstAgain is when asynq runs it again if it is in state retry or scheduled; else zero.
	FirstAgain time.Time
	// FirstAt is when it joined. FirstParked reports that it waits for the key, as far as is known: a task in state
	// retry that is not parked has failed.
	FirstAt     time.Time
	FirstParked bool
	// FirstLease is when asynq's lease on it ends if it is active, unless its worker extends it; otherwise zero.
	// FirstLost reports that the lease ended so long ago that its worker must have died, but not so long ago that
	// asynq's recoverer may be working on it. FirstBegun reports that it had begun to work: see [Engine.BringBack].
	FirstLease            time.Time
	FirstLost, FirstBegun bool
}

// Join adds a task to the sequence of key, unless it is there, and returns its position. The task stays until
// [Engine.Remove] removes it, or until a task behind it finds that it is gone: deleted, archived or completed in asynq,
// or waiting although its deadline has passed, after which asynq does not call its handler. If asynq ends a run for that
// reason before the handler was called, the Engine removes the task and wakes the next one. Only the first task may take
// the key's lock. So of two tasks the one that joined first runs first, in whichever queues and processes they are.
//
// It makes one call to Redis when the task is first, otherwise two, and two more for each hundred tasks that are gone.
func (e *Engine) Join(ctx context.Context, t Task, key string, opts JoinOptions) (Position, error) {
	var gone []string
	looks := 1 // the first is rarely gone
	for range goneCalls {
		entry, err := e.join(ctx, t, key, opts, looks, gone)
		if err != nil || entry.ahead == 0 {
			return Position{At: entry.at}, err
		}
		all, err := e.look(ctx, entry.front)
		if err != nil {
			return Position{}, err
		}
		live := slices.IndexFunc(all, taskState.live)
		if live == 0 {
			return Position{
				At: entry.at, Ahead: entry.ahead, First: all[0].task, FirstState: all[0].state, FirstAgain: all[0].due,
				FirstAt: entry.firstAt, FirstParked: entry.firstParked,
				FirstLease: all[0].lease, FirstLost: all[0].lost(time.Now()), FirstBegun: entry.firstBegun,
			}, nil
		}
		if gone = entry.front; live > 0 {
			gone = gone[:live]
		}
		looks = goneBatch
	}
	return Position{}, fmt.Errorf("delayqueue: task %s joins: the sequence still has tasks that are gone after %d looks",
		t, goneCalls)
}

// Front is the front of a sequence, whose key a task may have released.
type Front struct {
	// Next are the first tasks that are not gone, two at most.
	Next []Task
	// Parked is how many tasks are parked on the key, by [Engine.Park]. Some may be gone.
	Parked int
	// Lost reports that the first of Next is active on a worker that must have died, and Begun that it had begun to
	// work: see [Engine.BringBack].
	Lost, Begun bool
}

// Remove removes a task from the sequence of key and returns the new front. Call it when the task has finished for
// good, and wake the first of the front. An empty sequence leaves nothing in Redis. Remove does nothing when the task
// is not in the sequence. A task that is parked on the key stays: asynq has given up the run that ends here, and the
// task has begun another, which waits. The first few tasks that are parked get a short timer
// ([ParkOptions].RetryAfter), however far back they stood when they parked: if the wake is lost, the loss costs no more
// than that.
//
// It makes one call to Redis when the sequence is empty then, otherwise two, and two or three more for each hundred
// tasks that are gone.
func (e *Engine) Remove(ctx context.Context, t Task, key string) (Front, error) {
	left, err := e.front(ctx, key, t.Entry())
	if err != nil {
		err = fmt.Errorf("delayqueue: remove task %s from its sequence: %w", t, err)
	}
	return left, err
}

// Front returns the front of the sequence of key. It removes tasks that are gone, and changes nothing else. It makes as
// many calls as Remove.
func (e *Engine) Front(ctx context.Context, key string) (Front, error) {
	left, err := e.front(ctx, key, "")
	if err != nil {
		err = fmt.Errorf("delayqueue: the front of a sequence: %w", err)
	}
	return left, err
}

// front returns the front of a sequence after it has removed one entry, none when leaver is empty, and those of tasks
// that are gone.
func (e *Engine) front(ctx context.Context, key, leaver string, gone ...string) (Front, error) {
	looks := soonLooks
	for range goneCalls {
		found, err := e.remove(ctx, key, leaver, looks, gone)
		if err != nil {
			return Front{}, err
		}
		left := Front{Parked: found.parked}
		if len(found.front) == 0 {
			return left, nil
		}
		all, err := e.look(ctx, found.front)
		if err != nil {
			return Front{}, err
		}
		for _, entry := range found.waits {
			e.background(e.closing, followUpLimit, func(ctx context.Context) { e.hasten(ctx, entry) })
		}
		gone, leaver = nil, ""
		for i, each := range all {
			switch {
			case !each.live():
				gone = append(gone, found.front[i])
			case len(left.Next) < frontSize:
				left.Next = append(left.Next, each.task)
			}
			if len(left.Next) == 1 && len(gone) == 0 {
				left.Lost, left.Begun = all[0].lost(time.Now()), found.begun
			}
			if len(left.Next) == frontSize {
				break
			}
		}
		if len(gone) == 0 {
			return left, nil
		}
		looks = goneBatch
	}
	return Front{}, fmt.Errorf("it still has tasks that are gone after %d looks", goneCalls)
}

// departure is the reply of sequence_remove.lua.
type departure struct {
	parked       int
	begun        bool     // the first task has begun to work
	waits, front []string // the parked ones of the first tasks, and the first tasks
}

// remove runs sequence_remove.lua, and then removes gone tasks that were parked from the index, which may be on another
// server. An entry that stays there counts until a later check finds that it is gone.
func (e *Engine) remove(ctx context.Context, key, leaver string, looks int, gone []string) (d departure, err error) {
	args := append([]any{looks, leaver}, anys(gone)...)
	r := replyOf(sequenceRemoveScript.Run(ctx, e.client, []string{SequenceKey(key), WaitersKey(key)}, args...))
	parked, out, begun := r.number(), r.number(), r.yes()
	waits := r.texts(r.number())
	front := r.texts(len(r.rest))
	if r.err != nil {
		return d, r.err
	}
	if out > 0 {
		if err := e.client.ZRem(ctx, e.index, args[2:]...).Err(); err != nil {
			e.log.WarnContext(ctx,
				"a task that no longer waits still counts as parked, until it is found to be gone", "error", err)
		}
	}
	return departure{parked, begun, waits, front}, nil
}

// entry is a task's entry in a sequence.
type entry struct {
	at          time.Time
	ahead       int
	made        bool      // this call has made it
	parked      bool      // the task was parked until this call
	firstAt     time.Time // when the first one joined, and whether it is parked
	firstParked bool
	firstBegun  bool
	state       string   // of the task, when it was requested
	front       []string // the first of the tasks ahead
}

// join removes tasks that are gone from a sequence, and adds a task to it.
func (e *Engine) join(ctx context.Context, t Task, key string, opts JoinOptions, looks int, gone []string) (entry,
	error,
) {
	return e.joined(ctx, t, sequenceJoinScript.Run(ctx, e.client, []string{SequenceKey(key), WaitersKey(key)},
		joinArgs(t, opts, looks, gone)...))
}

// joinArgs returns the arguments of sequence_join.lua.
func joinArgs(t Task, opts JoinOptions, looks int, gone []string) []any {
	at, keep := "", opts.Keep
	if !opts.At.IsZero() {
		at = strconv.FormatInt(opts.At.UnixMicro(), 10)
	}
	if keep <= 0 {
		keep = DefaultKeep
	}
	return append([]any{t.Entry(), at, max(keep.Milliseconds(), 1), looks, number(opts.Begins), number(opts.Works)},
		anys(gone)...)
}

// joined reads the reply of sequence_join.lua, and removes a task that was parked from the index.
func (e *Engine) joined(ctx context.Context, t Task, cmd *redis.Cmd) (at entry, err error) {
	r := replyOf(cmd)
	at.ahead, at.at, at.made, at.parked = r.number(), r.moment(), r.yes(), r.yes()
	at.firstAt, at.firstParked, at.firstBegun, at.state = r.moment(), r.yes(), r.yes(), r.text()
	at.front = r.texts(len(r.rest))
	if err = r.err; err == nil && at.parked {
		err = e.client.ZRem(ctx, e.index, t.Entry()).Err()
	}
	if err != nil {
		return entry{}, fmt.Errorf("delayqueue: task %s joins the sequence: %w", t, err)
	}
	return at, nil
}
