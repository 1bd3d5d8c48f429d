package line

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/sequence_join.lua
	sequenceJoinSource string
	//go:embed lua/sequence_remove.lua
	sequenceRemoveSource string

	sequenceJoinScript   = redis.NewScript(composed(sequenceJoinSource))
	sequenceRemoveScript = redis.NewScript(sequenceRemoveSource)
)

const (
	goneBatch = 100  // tasks that are checked at once after one was found to be gone
	goneCalls = 1000 // how many batches one call checks
	frontSize = 2    // how many tasks Remove returns
	soonLooks = 3    // how many of the first tasks get a short timer from Remove
)

// sequencePrefix begins the names of all sequences.
const sequencePrefix = "railtoken:sequence:{"

// SequenceKey returns the name of the sorted set of the tasks that wait for a key or hold it, in order of arrival.
func SequenceKey(key string) string { return sequencePrefix + rediswire.Encode(key) + "}" }

// SequenceOf returns the key of the sequence that a task's record names: see head.lua.
func SequenceOf(mark string) (string, bool) {
	name, _, _ := strings.Cut(mark, " ")
	if !strings.HasPrefix(name, sequencePrefix) {
		return "", false
	}
	return rediswire.Decode(strings.TrimSuffix(name[len(sequencePrefix):], "}"))
}

// HasFailed reports whether the last run of a task in state retry has failed, by the railtoken:nonce and pending_since of its
// hash: asynq has ended the run that a fetch has named, unless a park has. A number is when the task was enqueued.
func HasFailed(nonce, run string) bool {
	return run != "" && run != nonce && strings.Trim(run, "0123456789") != ""
}

// JoinOptions says how a task joins a sequence. The zero value is a new arrival.
type JoinOptions struct {
	// At is the position that the task had before; when zero, it is a new arrival, at the end. A task that is in the
	// sequence keeps its position.
	At time.Time
	// Strict says that the task keeps its position when it fails. Otherwise it has none until it joins again.
	Strict bool
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
	// FirstAt is when it joined. FirstParked reports that it waits for the key, as far as is known, and FirstFailed that it
	// has failed, keeps its position, and waits for its retry.
	FirstAt                  time.Time
	FirstParked, FirstFailed bool
	// FirstLease is when asynq's lease on it ends if it is active, unless its worker extends it; otherwise zero.
	// FirstLost reports that its worker must have died: asynq has no lease on it, or the lease ended long ago, but not so
	// long ago that asynq's recoverer may be working on it. FirstBegun reports that it had begun to work: see
	// [Engine.BringBack].
	FirstLease            time.Time
	FirstLost, FirstBegun bool
}

// Join adds a task to the sequence of key, unless it is there, and returns its position. The task stays until
// [Engine.Remove] removes it, or until a task behind it finds that it is no head (head.lua): deleted, archived or
// completed in asynq, in the sequence of another key, failed unless it is Strict, or waiting although its deadline has
// passed, after which asynq does not call its handler. A task that was deleted and enqueued again with the same ID is
// another task, and joins at the end. If asynq ends a run before the handler was called, because the deadline has passed,
// the Engine removes the task and wakes the next one. Only the first task may take the key's lock. So of two tasks the
// one that joined first runs first, in whichever queues and processes they are. A sequence lives as long as its tasks.
//
// It makes one call to Redis when the task is first, otherwise two, and two more for each hundred tasks that are gone;
// on a Cluster one more.
func (e *Engine) Join(ctx context.Context, t Task, key string, opts JoinOptions) (Position, error) {
	how, err := e.enlist(ctx, t, key, howOf(opts))
	if err != nil {
		return Position{}, err
	}
	var gone []member
	looks := 1 // the first is rarely gone
	for range goneCalls {
		entry, err := e.join(ctx, t, key, opts, how, looks, gone)
		if err != nil || entry.ahead == 0 {
			return Position{At: entry.at}, err
		}
		all, err := e.look(ctx, key, entry.front)
		if err != nil {
			return Position{}, err
		}
		live := slices.IndexFunc(all, taskState.live)
		if live == 0 {
			return Position{
				At: entry.at, Ahead: entry.ahead, First: all[0].task, FirstState: all[0].state, FirstAgain: all[0].due,
				FirstAt: entry.firstAt, FirstParked: entry.firstParked, FirstFailed: all[0].verdict == headFailed,
				FirstLease: all[0].lease, FirstLost: all[0].verdict == headLost, FirstBegun: entry.firstBegun,
			}, nil
		}
		if gone = entry.front; live > 0 {
			gone = gone[:live]
		}
		if e.steps {
			how = "0"
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
	// work: see [Engine.BringBack]. Failed reports that it has failed, keeps its position, and waits for its retry, which
	// comes Again.
	Lost, Begun, Failed bool
	Again               time.Time
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
func (e *Engine) front(ctx context.Context, key, leaver string) (Front, error) {
	var gone []member
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
		all, err := e.look(ctx, key, found.front)
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
				left.Lost, left.Begun = all[0].verdict == headLost, found.begun
				left.Failed, left.Again = all[0].verdict == headFailed, all[0].due
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
	parked int
	begun  bool     // the first task has begun to work
	waits  []string // the parked ones of the first tasks
	front  []member // the first tasks
}

// member is an entry of a sequence, with its score as Redis gives it. Of two entries for one task, made by two enqueues with
// the same ID, the scores differ.
type member struct{ entry, score string }

// members reads the rest of a reply: entries, each with its score.
func (r *reply) members() []member {
	all := make([]member, 0, len(r.rest)/2)
	for len(r.rest) > 0 {
		all = append(all, member{r.text(), r.text()})
	}
	return all
}

// entriesOf returns the entries of members.
func entriesOf(all []member) []any {
	entries := make([]any, len(all))
	for i, m := range all {
		entries[i] = m.entry
	}
	return entries
}

// pairsOf returns members as arguments of a script.
func pairsOf(all []member) []any {
	args := make([]any, 0, 2*len(all))
	for _, m := range all {
		args = append(args, m.entry, m.score)
	}
	return args
}

// remove runs sequence_remove.lua, and then removes gone tasks that were parked from the index, which may be on another
// server. An entry that stays there counts until a later check finds that it is gone.
func (e *Engine) remove(ctx context.Context, key, leaver string, looks int, gone []member) (d departure, err error) {
	args := append([]any{looks, leaver}, pairsOf(gone)...)
	r := replyOf(sequenceRemoveScript.Run(ctx, e.client, []string{SequenceKey(key), WaitersKey(key)}, args...))
	parked, out, begun := r.number(), r.number(), r.yes()
	waits := r.texts(r.number())
	front := r.members()
	if r.err != nil {
		return d, r.err
	}
	if out > 0 {
		if err := e.client.ZRem(ctx, e.index, entriesOf(gone)...).Err(); err != nil {
			e.log.WarnContext(ctx,
				"a task that no longer waits still counts as parked, until it is found to be gone", "error", err)
		}
	}
	return departure{parked, begun, waits, front}, nil
}

// entry is a task's entry in a sequence.
type entry struct {
	at          time.Time
	ahead       int       // -1 when the task has not joined
	made        bool      // this call has made it
	parked      bool      // the task was parked until this call
	firstAt     time.Time // when the first one joined, and whether it is parked
	firstParked bool
	firstBegun  bool
	front       []member // the first of the tasks ahead
}

// howOf returns how a task joins its sequence when it runs (head.lua).
func howOf(opts JoinOptions) string {
	if opts.Strict {
		return "strict"
	}
	return "fifo"
}

// enlist notes in a task's hash that it is in the sequence of key, as a step of its own on a Cluster. It returns what
// sequence_join.lua is told of it. The note comes first: an entry whose task does not name the sequence is left over.
func (e *Engine) enlist(ctx context.Context, t Task, key, how string) (string, error) {
	if !e.steps {
		return how, nil
	}
	r := replyOf(e.step(ctx, enlistStep, t.Hash(), SequenceKey(key), how))
	_, fresh := r.text(), r.number()
	if r.err != nil {
		return "", fmt.Errorf("delayqueue: task %s joins the sequence: %w", t, r.err)
	}
	return strconv.Itoa(fresh), nil
}

// join removes tasks that are gone from a sequence, and adds a task to it, which was parked until then when its run begins.
func (e *Engine) join(ctx context.Context, t Task, key string, opts JoinOptions, how string, looks int,
	gone []member,
) (at entry, err error) {
	names := []string{SequenceKey(key), WaitersKey(key)}
	if !e.steps {
		names = append(names, t.Hash())
	}
	before := ""
	if !opts.At.IsZero() {
		before = strconv.FormatInt(opts.At.UnixMicro(), 10)
	}
	args := append([]any{t.Entry(), before, looks, number(opts.Begins), number(opts.Works), how}, pairsOf(gone)...)
	r := replyOf(sequenceJoinScript.Run(ctx, e.client, names, args...))
	at.ahead, at.at, at.made, at.parked = r.number(), r.moment(), r.yes(), r.yes()
	at.firstAt, at.firstParked, at.firstBegun = r.moment(), r.yes(), r.yes()
	at.front = r.members()
	if err = r.err; err == nil && at.parked {
		err = e.client.ZRem(ctx, e.index, t.Entry()).Err()
	}
	if err != nil {
		return entry{}, fmt.Errorf("delayqueue: task %s joins the sequence: %w", t, err)
	}
	return at, nil
}
