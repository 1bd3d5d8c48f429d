package delayqueue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
)

// lookBatch is how many tasks are read in one pipeline.
const lookBatch = 500

// Waiter is a task that waits for a key.
type Waiter struct {
	Task Task
	Key  string
	// Also are further keys that it waits for: the first of all its keys that is released wakes it. Only a task of items
	// (package items) waits for several.
	Also []string

	// Position is the task's position among the waiters: 1 is the next that [Queue.Wake] wakes. Tasks before it that
	// are gone, and that a wake will skip, are counted too. It says nothing about the order of tasks that run in order.
	Position int
	// Since is the time of its first conflict, by the clock of Redis, and Conflicts is how often it was refused since its
	// handler last ran.
	Since     time.Time
	Conflicts int
	// Supersedes is the group of tasks that it supersedes: see middleware.Supersede. Empty for other tasks.
	Supersedes string
	// State is where the task is. A waiting task is parked, or about to be, or has just been.
	State State
	// Next is when its own timer brings it back at the latest, in whole seconds; zero when the task is not parked at
	// present.
	Next time.Time

	// Failed says that its last run has failed, and that it is retried at Next. In a sequence under StrictFIFO the tasks
	// behind it wait for that.
	Failed bool

	set      string // the set of waiters that its record names
	sequence string // the key of the sequence that its record names
	joined   time.Time
}

// waits reports whether a task whose record and position were read is among the waiters and will run.
func (w *Waiter) waits() bool { return w.Position > 0 && !w.State.over() }

// readRecords reads where the tasks are, what they wait for, and their conflicts.
func (i *Inspector) readRecords(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, i.client(), "tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.SliceCmd {
		return p.HMGet(ctx, line.Task(w.Task).Hash(), asynqwire.StateField, "railtoken:sequence", line.NonceField, asynqwire.PendingSinceField, line.WaitField,
			line.ForemostField)
	}, func(w *Waiter, reply *redis.SliceCmd) { w.readRecord(i.engine.Names(), reply.Val()) })
}

// readRecord reads the fields of a task's hash. What is missing or foreign leaves w as it is.
func (w *Waiter) readRecord(names line.Names, fields []any) {
	text := make([]string, 4)
	for n, field := range fields[:4] {
		text[n], _ = field.(string)
	}
	w.State = State(text[0])
	if w.State == "" {
		w.State = StateGone
		return
	}
	wait := line.ParseWait(fields[4])
	if key, ok := wait.Key(); ok {
		w.Key, w.set, w.Also = key, names.Waiters(key), wait.Keys[1:]
	}
	w.Conflicts = wait.Count
	if !wait.First.IsZero() {
		w.Since = wait.First
	}
	w.Supersedes, _ = fields[5].(string)
	w.sequence, _ = line.SequenceOf(text[1])
	w.Failed = w.State == StateRetry && line.HasFailed(text[2], text[3])
}

// readTimers reads when the timers of parked tasks end.
func (i *Inspector) readTimers(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, i.client(), "the timers of tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.FloatCmd {
		if w.State != StateRetry && w.State != "scheduled" {
			return nil
		}
		return p.ZScore(ctx, line.Task(w.Task).Prefix()+string(w.State), w.Task.ID)
	}, func(w *Waiter, at *redis.FloatCmd) { w.Next = time.Unix(int64(at.Val()), 0) })
}

// readPositions reads the positions of the tasks among the waiters that their records name; 0 when a task is not there.
func (i *Inspector) readPositions(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, i.client(), "the positions of tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.IntCmd {
		if w.set == "" {
			return nil
		}
		return p.ZRank(ctx, w.set, line.Task(w.Task).Entry())
	}, func(w *Waiter, rank *redis.IntCmd) { w.Position = int(rank.Val()) + 1 })
}
