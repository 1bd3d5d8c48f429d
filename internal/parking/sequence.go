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
	sequenceSource string
	//go:embed lua/sequence_remove.lua
	removeSource string

	sequenceScript = redis.NewScript(sequenceSource)
	removeScript   = redis.NewScript(removeSource)
)

// DefaultKeep is how long a line is remembered after the last arrival.
const DefaultKeep = 48 * time.Hour

const (
	deadBatch = 100  // tasks that are looked at together once a dead one was met
	deadCalls = 1000 // how many batches one call goes through
	frontSize = 2    // tasks that Remove names
	soonLooks = 3    // tasks that look for themselves soon once somebody has left before them
)

// SequenceKey returns the name of the sorted set of the tasks that wait for a key or hold it, in the order in which
// they came.
func SequenceKey(key string) string { return "railtoken:sequence:{" + keys.Encode(key) + "}" }

// JoinOptions says how a task joins a line. The zero value is a new arrival.
type JoinOptions struct {
	// At is the place that the task was given before.
	// Zero is a new arrival, behind everybody who is in line. A task that is in line keeps its place.
	At time.Time
	// Keep is how long the line is remembered after the last call for it; 48 h when zero. It must outlast the longest
	// time between two runs of a task. Of different values for a key the longest holds.
	Keep time.Duration
	// Begins says that the task's run has just begun. If it was parked on the key, and its timer or an operator has
	// brought it back, it is not any more: nobody wakes it.
	Begins bool
	// Works says that the task works as soon as it is its turn: if its worker dies then, it has failed.
	Works bool
}

// Position is where a task stands in line.
type Position struct {
	// At is its place: the moment at which it joined, by the clock of Redis. No two arrivals have the same.
	At time.Time
	// Ahead is how many tasks stand before it. It is its turn when there are none, and then the fields below are zero.
	// Some of them may be gone, but not the first.
	Ahead int
	// First is the first in line.
	First Task
	// FirstState is its state, in the words of asynq: active, pending, scheduled, retry or aggregating.
	FirstState string
	// FirstAgain is when asynq runs it again if it is in state retry or scheduled; else zero.
	FirstAgain time.Time
	// FirstAt is its place, and FirstParked reports that it waits for the key, as far as is known: one that is delayed
	// and not parked has failed.
	FirstAt     time.Time
	FirstParked bool
	// FirstLease is when asynq's lease on it ends if it is active, unless its worker extends it; else zero. FirstLost
	// reports that this was so long ago that its worker must have died, but not so long that asynq's recoverer may be
	// at it, and FirstBegun that it had begun to work: see [Engine.BringBack].
	FirstLease            time.Time
	FirstLost, FirstBegun bool
}

// Join adds a task to the line of key, unless it is in it, and tells how many stand before it. A task stays in line,
// whatever becomes of it, until [Engine.Remove] takes it out or somebody behind it finds that it is gone: deleted,
// archived or completed in asynq, or retried though its deadline has passed, after which asynq runs no handler. Only
// the first in line may take the key's lock; then of two tasks the one that joined first runs first, in whichever
// queues and processes they are.
//
// It makes one call to Redis when it is the task's turn, else two; and two more for each hundred that are gone.
func (e *Engine) Join(ctx context.Context, t Task, key string, opts JoinOptions) (Position, error) {
	var gone []string
	looks := 1 // the first in line lives, as a rule
	for range deadCalls {
		entry, err := e.join(ctx, t, key, opts, looks, gone)
		if err != nil || entry.ahead == 0 {
			return Position{At: entry.at}, err
		}
		all, err := e.look(ctx, entry.front)
		if err != nil {
			return Position{}, err
		}
		live := slices.IndexFunc(all, standing.live)
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
		looks = deadBatch
	}
	return Position{}, fmt.Errorf("delayqueue: task %s joins: the sequence still has tasks that are gone after %d looks", t, deadCalls)
}

// Front says who is in line for a key, that a task may have given back.
type Front struct {
	// Next is the first live tasks in line, two at most.
	Next []Task
	// Parked is how many tasks are parked on the key, by [Engine.Park]. Some may be gone.
	Parked int
	// Lost reports that the first of Next is active in a worker that must have died, and Begun that it had begun to
	// work: see [Engine.BringBack].
	Lost, Begun bool
}

// Remove takes a task out of the line of key and tells who is first then: call it when the task has finished for good,
// and wake the first after it. Nothing is kept of an empty line. It does no harm when the task is not in line. One that
// is parked on the key stays: asynq has given up the run that ends here, and begun another, which waits. The first few
// who are parked look for themselves soon from now on ([ParkOptions].Look), however far back they stood when they were:
// should the wake be lost, it costs no more than that.
//
// It makes one call to Redis when nobody is left in line, else two; and two or three more for each hundred that are
// gone.
func (e *Engine) Remove(ctx context.Context, t Task, key string) (Front, error) {
	left, err := e.front(ctx, key, t.Entry())
	if err != nil {
		err = fmt.Errorf("delayqueue: remove task %s from its sequence: %w", t, err)
	}
	return left, err
}

// Front tells who is first in the line of key, and changes nothing but that those who are gone leave it. It makes as
// many calls as Remove.
func (e *Engine) Front(ctx context.Context, key string) (Front, error) {
	left, err := e.front(ctx, key, "")
	if err != nil {
		err = fmt.Errorf("delayqueue: the front of a sequence: %w", err)
	}
	return left, err
}

// front tells who is first in the line of key once an entry has left it. None leaves when it is empty.
func (e *Engine) front(ctx context.Context, key, leaver string) (Front, error) {
	var gone []string
	looks := soonLooks
	for range deadCalls {
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
			e.background(e.closing, followLimit, func(ctx context.Context) { e.hasten(ctx, entry) })
		}
		gone, leaver = gone[:0], ""
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
		looks = deadBatch
	}
	return Front{}, fmt.Errorf("it still has tasks that are gone after %d looks", deadCalls)
}

// departure is the reply of the script that takes tasks out of a line.
type departure struct {
	parked       int
	begun        bool     // the first in line has begun to work
	waits, front []string // who of the first is parked, and the first
}

// remove runs the script, and then takes those who are gone and were parked out of the index, which may be on another
// server. An entry that stays there counts until somebody finds it to be gone.
func (e *Engine) remove(ctx context.Context, key, leaver string, looks int, gone []string) (d departure, err error) {
	args := append([]any{looks, leaver}, anys(gone)...)
	r := replyOf(removeScript.Run(ctx, e.client, []string{SequenceKey(key), WaitersKey(key)}, args...))
	parked, out, begun := r.number(), r.number(), r.yes()
	waits := r.texts(r.number())
	front := r.texts(len(r.rest))
	if r.err != nil {
		return d, r.err
	}
	if out > 0 {
		if err := e.client.ZRem(ctx, e.index, args[2:]...).Err(); err != nil {
			e.log.WarnContext(ctx,
				"a task that does not wait any more counts as parked until it is found to be gone", "error", err)
		}
	}
	return departure{parked, begun, waits, front}, nil
}

// entry is a task's entry in a line.
type entry struct {
	at          time.Time
	ahead       int
	made        bool      // by this call
	parked      bool      // until this call
	firstAt     time.Time // the place of the first one, and whether it is parked
	firstParked bool
	firstBegun  bool
	state       string   // of the task, when it was asked for
	front       []string // the first of those ahead
}

// join runs the script that gives a task its place, after it has removed those that are gone.
func (e *Engine) join(ctx context.Context, t Task, key string, opts JoinOptions, looks int, gone []string) (entry,
	error,
) {
	return e.joined(ctx, t, sequenceScript.Run(ctx, e.client, []string{SequenceKey(key), WaitersKey(key)},
		joinArgs(t, opts, looks, gone)...))
}

// joinArgs returns the arguments of the line script.
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

// joined reads the reply of the line script, and takes a task that was parked out of the index.
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
