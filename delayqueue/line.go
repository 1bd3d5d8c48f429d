package delayqueue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

var (
	//go:embed lua/line.lua
	lineSource string
	//go:embed lua/line_leave.lua
	lineLeaveSource string

	lineScript      = redis.NewScript(lineSource)
	lineLeaveScript = redis.NewScript(lineLeaveSource)
)

// DefaultKeep is how long a line is remembered after the last arrival.
const DefaultKeep = 48 * time.Hour

const (
	lineBatch = 100  // tasks that are looked at together once a dead one was met
	lineCalls = 1000 // how many batches one call goes through
	lineNext  = 2    // tasks that LeaveLine names
)

// line returns the name of the sorted set of the tasks that wait for a key or hold it, in the order in which they came.
func line(key string) string { return "railtoken:line:{" + keys.Encode(key) + "}" }

// TurnOptions says how a task joins a line. The zero value is a new arrival.
type TurnOptions struct {
	// At is the place that the task was given before, in a queue from which it was moved for instance.
	// Zero is a new arrival, behind everybody who is in line. A task that is in line keeps its place.
	At time.Time
	// Keep is how long the line is remembered after the last call for it; 48 h when zero. It must outlast the longest time between
	// two runs of a task. Of different values for a key the longest holds.
	Keep time.Duration
	// Begins says that the task's run has just begun. If it was parked on the key, and its timer or an operator has brought it back, it is not any more:
	// nobody wakes it.
	Begins bool
}

// Turn is where a task stands in line.
type Turn struct {
	// At is its place: the moment at which it joined, by the clock of Redis. No two arrivals have the same.
	At time.Time
	// Ahead is how many tasks stand before it. It is its turn when there are none, and then the fields below are zero. Some of
	// them may be gone, but not the first.
	Ahead int
	// First is the first in line.
	First Task
	// FirstState is its state, in the words of asynq: active, pending, scheduled, retry or aggregating.
	FirstState string
	// FirstAgain is when asynq runs it again if it is in state retry or scheduled; else zero.
	FirstAgain time.Time
	// FirstAt is its place, and FirstParked reports that it waits for the key, as far as is known: one that is delayed and not parked has failed.
	FirstAt     time.Time
	FirstParked bool
}

// Turn adds a task to the line of key, unless it is in it, and tells how many stand before it. A task stays in line, whatever becomes of
// it, until [Queue.LeaveLine] takes it out or somebody behind it finds that it is gone: deleted, archived or completed in asynq, or
// retried though its deadline has passed, after which asynq runs no handler. Only the
// first in line may take the key's lock; then of two tasks the one that joined first runs first, in whichever queues and processes
// they are.
//
// It makes one call to Redis when it is the task's turn, else two; and two more for each hundred that are gone.
func (q *Queue) Turn(ctx context.Context, t Task, key string, opts TurnOptions) (Turn, error) {
	var gone []string
	looks := 1 // the first in line lives, as a rule
	for range lineCalls {
		entry, err := q.join(ctx, t, key, opts, looks, gone)
		if err != nil || entry.ahead == 0 {
			return Turn{At: entry.at}, err
		}
		first, all, err := q.look(ctx, entry.front)
		if err != nil {
			return Turn{}, err
		}
		if gone = leading(all); len(gone) == 0 {
			return Turn{
				At: entry.at, Ahead: entry.ahead, First: all[0].task, FirstState: all[0].state, FirstAgain: first,
				FirstAt: entry.firstAt, FirstParked: entry.firstParked,
			}, nil
		}
		looks = lineBatch
	}
	return Turn{}, fmt.Errorf("delayqueue: the turn of task %s: the line was still full of tasks that are gone after %d looks", t, lineCalls)
}

// Left says who is in line for a key, that a task may have given back.
type Left struct {
	// Next is the first live tasks in line, two at most.
	Next []Task
	// Parked is how many tasks are parked on the key, by [Queue.Park]. Some may be gone.
	Parked int
}

// LeaveLine takes a task out of the line of key and tells who is first then: call it when the task has finished for good, and wake the
// first after it. Nothing is kept of an empty line. It does no harm when the task is not in line. One that is parked on the key stays: asynq
// has given up the run that ends here, and begun another, which waits.
//
// It makes one call to Redis when nobody is left in line, else two; and two or three more for each hundred that are gone.
func (q *Queue) LeaveLine(ctx context.Context, t Task, key string) (Left, error) {
	left, err := q.front(ctx, key, t.member())
	if err != nil {
		err = fmt.Errorf("delayqueue: task %s leaves the line: %w", t, err)
	}
	return left, err
}

// Front tells who is first in the line of key, and changes nothing but that those who are gone leave it. It makes as many calls as LeaveLine.
func (q *Queue) Front(ctx context.Context, key string) (Left, error) {
	left, err := q.front(ctx, key, "")
	if err != nil {
		err = fmt.Errorf("delayqueue: the front of a line: %w", err)
	}
	return left, err
}

// front tells who is first in the line of key once an entry has left it. None leaves when it is empty.
func (q *Queue) front(ctx context.Context, key, leaver string) (Left, error) {
	var gone []string
	looks := lineNext
	for range lineCalls {
		parked, front, err := q.leaveLine(ctx, key, leaver, looks, gone)
		if err != nil {
			return Left{}, err
		}
		left := Left{Parked: parked}
		if len(front) == 0 {
			return left, nil
		}
		_, all, err := q.look(ctx, front)
		if err != nil {
			return Left{}, err
		}
		gone, leaver = gone[:0], ""
		for _, e := range all {
			switch {
			case !e.live():
				gone = append(gone, e.entry)
			case len(left.Next) < lineNext:
				left.Next = append(left.Next, e.task)
			}
			if len(left.Next) == lineNext {
				break
			}
		}
		if len(gone) == 0 {
			return left, nil
		}
		looks = lineBatch
	}
	return Left{}, fmt.Errorf("it was still full of tasks that are gone after %d looks", lineCalls)
}

// leaveLine runs the script, and then takes those who are gone and were parked out of the index, which may be on another server. An entry that
// stays there counts until somebody finds it to be gone.
func (q *Queue) leaveLine(ctx context.Context, key, leaver string, looks int, gone []string) (parked int, front []string, err error) {
	args := make([]any, 0, 2+len(gone))
	args = append(args, looks, leaver)
	for _, member := range gone {
		args = append(args, member)
	}
	reply, err := lineLeaveScript.Run(ctx, q.client, []string{line(key), registry(key)}, args...).Slice()
	if err != nil {
		return 0, nil, err
	}
	if len(reply) < 2 {
		return 0, nil, unexpected(reply)
	}
	n, ok1 := reply[0].(int64)
	out, ok2 := reply[1].(int64)
	front, ok3 := texts(reply[2:])
	if !ok1 || !ok2 || !ok3 {
		return 0, nil, unexpected(reply)
	}
	if out > 0 {
		if err := q.client.ZRem(ctx, q.index, args[2:]...).Err(); err != nil {
			q.log.WarnContext(ctx, "a task that does not wait any more counts as parked until somebody finds it to be gone", "error", err)
		}
	}
	return int(n), front, nil
}

// entry is a task's entry in a line.
type entry struct {
	at          time.Time
	ahead       int
	made        bool      // by this call
	parked      bool      // until this call
	firstAt     time.Time // the place of the first one, and whether it is parked
	firstParked bool
	front       []string // the first of those ahead
}

// join runs the script that gives a task its place, after it has removed those that are gone.
func (q *Queue) join(ctx context.Context, t Task, key string, opts TurnOptions, looks int, gone []string) (entry, error) {
	return q.joined(ctx, t, lineScript.Run(ctx, q.client, []string{line(key), registry(key)}, joinArgs(t, opts, looks, gone)...))
}

// joinArgs returns the arguments of the line script.
func joinArgs(t Task, opts TurnOptions, looks int, gone []string) []any {
	at, keep := "", opts.Keep
	if !opts.At.IsZero() {
		at = strconv.FormatInt(opts.At.UnixMicro(), 10)
	}
	if keep <= 0 {
		keep = DefaultKeep
	}
	begins := 0
	if opts.Begins {
		begins = 1
	}
	args := make([]any, 0, 5+len(gone))
	args = append(args, t.member(), at, max(keep.Milliseconds(), 1), looks, begins)
	for _, member := range gone {
		args = append(args, member)
	}
	return args
}

// joined reads the reply of the line script, and takes a task that was parked out of the index.
func (q *Queue) joined(ctx context.Context, t Task, cmd *redis.Cmd) (e entry, err error) {
	reply, err := cmd.Slice()
	if err == nil {
		if e, err = parseEntry(reply); err == nil {
			if e.parked {
				err = q.client.ZRem(ctx, q.index, t.member()).Err()
			}
			return e, err
		}
	}
	return entry{}, fmt.Errorf("delayqueue: the turn of task %s: %w", t, err)
}

// parseEntry reads the reply of the line script.
func parseEntry(reply []any) (entry, error) {
	bad := fmt.Errorf("the server answered what the script cannot: %v", reply)
	if len(reply) < 6 {
		return entry{}, bad
	}
	ahead, ok1 := reply[0].(int64)
	place, ok2 := reply[1].(string)
	made, ok3 := reply[2].(int64)
	parked, ok4 := reply[3].(int64)
	firstPlace, ok5 := reply[4].(string)
	waits, ok6 := reply[5].(int64)
	front, ok7 := texts(reply[6:])
	us, err1 := strconv.ParseInt(place, 10, 64)
	firstUS, err2 := strconv.ParseInt(firstPlace, 10, 64)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || err1 != nil || err2 != nil {
		return entry{}, bad
	}
	return entry{
		at: time.UnixMicro(us), ahead: int(ahead), made: made == 1, parked: parked == 1,
		firstAt: time.UnixMicro(firstUS), firstParked: waits == 1, front: front,
	}, nil
}

// texts returns the values as strings, and false when one is none.
func texts(values []any) ([]string, bool) {
	all := make([]string, len(values))
	for i, v := range values {
		s, ok := v.(string)
		if !ok {
			return nil, false
		}
		all[i] = s
	}
	return all, true
}

// standing is a task in line and its state in asynq, empty when asynq has no such task, or overdue.
type standing struct {
	entry string
	task  Task
	state string
}

// live reports whether the task has yet to finish.
func (s standing) live() bool {
	return s.state != "" && s.state != "archived" && s.state != "completed" && s.state != overdue
}

// leading returns the entries of those that are gone before the first live one.
func leading(all []standing) []string {
	var gone []string
	for _, s := range all {
		if s.live() {
			break
		}
		gone = append(gone, s.entry)
	}
	return gone
}

// look asks asynq's keys for the states of tasks, and when the first of them is due if it is delayed. Of the first two it finds out whether
// they are overdue: who removes those in front looks again. It stands apart from the scripts:
// on a Redis Cluster a task and a line are on different nodes. What is seen may have changed since, but a task that is gone stays so: nobody
// joins a line before asynq has the task.
func (q *Queue) look(ctx context.Context, members []string) (due time.Time, all []standing, err error) {
	all = make([]standing, len(members))
	for i, member := range members {
		all[i].entry, all[i].task = member, taskOf(member)
	}
	states := make([]*redis.StringCmd, len(all))
	messages := make([]*redis.StringCmd, min(len(all), lineNext))
	scores := map[string]*redis.FloatCmd{}
	_, err = q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, s := range all {
			states[i] = pipe.HGet(ctx, s.task.hash(), "state")
			if i < len(messages) {
				messages[i] = pipe.HGet(ctx, s.task.hash(), "msg")
			}
		}
		for _, set := range []string{"retry", "scheduled"} {
			scores[set] = pipe.ZScore(ctx, "asynq:{"+all[0].task.Queue+"}:"+set, all[0].task.ID)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return time.Time{}, nil, fmt.Errorf("delayqueue: the states of tasks in line: %w", err)
	}
	for i, cmd := range states { // the error above is the first one only
		switch state, err := cmd.Result(); {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return time.Time{}, nil, fmt.Errorf("delayqueue: the state of task %s: %w", all[i].task, err)
		case state == "":
			return time.Time{}, nil, fmt.Errorf("delayqueue: the state of task %s is empty", all[i].task)
		default:
			all[i].state = state
		}
		if i < len(messages) && mayBeOverdue(all[i].state) {
			if deadline := deadlineOf(messages[i].Val()); !deadline.IsZero() && time.Now().After(deadline) {
				all[i].state = overdue
			}
		}
	}
	if score, ok := scores[all[0].state]; ok {
		if err := score.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return time.Time{}, nil, fmt.Errorf("delayqueue: the time of task %s: %w", all[0].task, err)
		}
		if s := score.Val(); s > 0 {
			due = time.Unix(int64(s), 0)
		}
	}
	return due, all, nil
}
