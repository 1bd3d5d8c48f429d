package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// mostLooked bounds what one call reads, whatever it is asked for: Redis does nothing else meanwhile.
	mostLooked = 10_000
	// lookBatch is how many tasks are asked about in one pipeline.
	lookBatch = 500
)

// State is where a task is, in the words of asynq: "retry" for one that is parked, "active" for one that runs,
// "pending" for one that was woken or that its timer brought back, "scheduled", "archived", "completed"; or [StateGone].
type State string

// The states that this package tells apart.
const (
	StateActive   State = "active"
	StatePending  State = "pending"
	StateRetry    State = "retry"
	StateArchived State = "archived"
	StateGone     State = "gone" // asynq knows no such task
)

// Waiter is a task that waits for a key.
type Waiter struct {
	Task Task
	Key  string

	// Position is the task's place in the line of those who were refused: 1 is the next to be woken by [Queue.Wake]. Those before it
	// that are gone, and that a wake will skip, are counted too. It says nothing of tasks that run by their [Queue.Join].
	Position int
	// Since is its first conflict, by the clock of Redis, and Conflicts how often it was refused since its handler last ran.
	Since     time.Time
	Conflicts int
	// State is where the task is. One that waits is parked, or on its way to or from that.
	State State
	// Next is when its own timer brings it back at the latest, in whole seconds; zero for a task that is not parked at this moment.
	Next time.Time

	registry string
	place    time.Time
}

// Waiters returns the first n tasks that are parked on key, at most 10 000, the next in line first. Some may be gone: a wake skips those.
// Tasks that wait in their worker slots are not among them. Of tasks that run by their [Queue.Join] it tells who waits, but not in
// which order they will run.
//
// It makes one call to Redis, and two more for each 500 tasks. What it returns is not one moment: tasks come and go meanwhile.
func (q *Queue) Waiters(ctx context.Context, key string, n int) ([]Waiter, error) {
	return q.standingIn(ctx, registry(key), key, n)
}

// Sequence returns the first n tasks in the line of a key whose tasks run by their [Queue.Join], at most 10 000, in the order in which they will run:
// the first may run, or does. Position counts from 1, and Since is when a task joined. Some may be gone: whoever is behind them finds that.
//
// It costs what [Queue.Waiters] costs.
func (q *Queue) Sequence(ctx context.Context, key string, n int) ([]Waiter, error) {
	waiters, err := q.standingIn(ctx, line(key), key, n)
	for i := range waiters {
		waiters[i].Since = waiters[i].place
	}
	return waiters, err
}

// standingIn returns the first n tasks of a registry or a line.
func (q *Queue) standingIn(ctx context.Context, set, key string, n int) ([]Waiter, error) {
	if n <= 0 {
		return nil, nil
	}
	entries, err := q.client.ZRangeWithScores(ctx, set, 0, int64(min(n, mostLooked))-1).Result()
	if err != nil {
		return nil, fmt.Errorf("delayqueue: list waiters: %w", err)
	}
	waiters := make([]Waiter, 0, len(entries))
	for i, e := range entries {
		member, _ := e.Member.(string)
		if t, err := parseMember(member); err == nil { // anything else is none of ours
			at := time.UnixMicro(int64(e.Score))
			waiters = append(waiters, Waiter{Task: t, Position: i + 1, Since: at, place: at})
		}
	}
	if err := q.readRecords(ctx, waiters); err != nil {
		return nil, err
	}
	for i := range waiters {
		waiters[i].Key = key
	}
	return waiters, q.readTimers(ctx, waiters)
}

// readRecords fills in what the tasks' hashes hold: where they are, what they wait for, and their conflicts.
func (q *Queue) readRecords(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, q, "tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.SliceCmd {
		return p.HMGet(ctx, w.Task.hash(), "state", "railtoken:registry", "railtoken:conflicts", "railtoken:first")
	}, func(w *Waiter, reply *redis.SliceCmd) { w.readRecord(reply.Val()) })
}

// readRecord fills in what the fields of a task's hash say. What is missing or foreign leaves w as it is.
func (w *Waiter) readRecord(fields []any) {
	text := make([]string, 4)
	for i, field := range fields {
		text[i], _ = field.(string)
	}
	w.State = State(text[0])
	if w.State == "" {
		w.State = StateGone
		return
	}
	if key, ok := keyOf(text[1]); ok && registry(key) == text[1] {
		w.Key, w.registry = key, text[1]
	}
	if n, err := strconv.Atoi(text[2]); err == nil {
		w.Conflicts = n
	}
	if us, err := strconv.ParseInt(text[3], 10, 64); err == nil && us > 0 {
		w.Since = time.UnixMicro(us)
	}
}

// readTimers fills in when the timers of those that are parked end.
func (q *Queue) readTimers(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, q, "the timers of tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.FloatCmd {
		if w.State != StateRetry && w.State != "scheduled" {
			return nil
		}
		return p.ZScore(ctx, w.Task.prefix()+string(w.State), w.Task.ID)
	}, func(w *Waiter, at *redis.FloatCmd) { w.Next = time.Unix(int64(at.Val()), 0) })
}

// readPositions fills in where the tasks stand in the lines that their records name; 0 for those that stand in none.
func (q *Queue) readPositions(ctx context.Context, waiters []Waiter) error {
	return ask(ctx, q, "the places of tasks", waiters, func(p redis.Pipeliner, w *Waiter) *redis.IntCmd {
		if w.registry == "" {
			return nil
		}
		return p.ZRank(ctx, w.registry, w.Task.member())
	}, func(w *Waiter, rank *redis.IntCmd) { w.Position = int(rank.Val()) + 1 })
}

// ask asks something about each of the waiters for which send sends a command, one part of them after another, and has the replies noted. What is not there
// any more is left out.
func ask[C interface {
	comparable
	redis.Cmder
}](ctx context.Context, q *Queue, about string, waiters []Waiter, send func(redis.Pipeliner, *Waiter) C, note func(*Waiter, C)) error {
	var none C
	for batch := range slices.Chunk(waiters, lookBatch) {
		cmds := make([]C, len(batch))
		_, err := q.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range batch {
				cmds[i] = send(p, &batch[i])
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("delayqueue: look at %s: %w", about, err)
		}
		for i, cmd := range cmds {
			if cmd != none && cmd.Err() == nil {
				note(&batch[i], cmd)
			}
		}
	}
	return nil
}

// prefix begins the names of asynq's keys of the task's queue.
func (t Task) prefix() string { return "asynq:{" + t.Queue + "}:" }
