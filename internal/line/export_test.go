package line

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/holdings"
)

// FollowUpFirst is when a wake is checked for the first time.
const FollowUpFirst = followUpFirst

// Composed returns a script that may call the functions.
func Composed(source string) string { return composed(source) }

// steps are the scripts that run on a Cluster alone.
var steps = map[string]*redis.Script{
	"suspend": suspendStep, "postpone": postponeStep, "defer": deferStep, "stand": standStep, "forget": forgetStep,
	"leave": leaveStep, "join": joinStep, "look": lookStep, "discard": discardStep, "enter": enterStep,
	"enlist": enlistStep, "head": headStep, "owe": oweStep, "paid": paidStep, "ended": endedStep, "check": checkStep, "hasten": hastenStep, "promote": promoteStep,
}

// ClusterScripts returns the names of all scripts that run on a Cluster, by their hashes.
func ClusterScripts() map[string]string {
	names := map[string]string{
		replayScript.Hash(): "replay", reorderScript.Hash(): "reorder", setPositionScript.Hash(): "set_position", endScript.Hash(): "end", bringBackScript.Hash(): "bring_back", sequenceJoinScript.Hash(): "sequence_join", sequenceRemoveScript.Hash(): "sequence_remove",
		owedScript.Hash(): "owed",
	}
	for name, s := range steps {
		names[s.Hash()] = name
	}
	return names
}

// LoadSteps loads every step on every master, so that each is one command.
func LoadSteps(ctx context.Context, client redis.UniversalClient) error {
	for _, s := range steps {
		if err := s.Load(ctx, client).Err(); err != nil {
			return err
		}
	}
	return nil
}

// PayOwed looks for owed wakes, as an Engine with a Conn does all the time.
func (e *Engine) PayOwed(ctx context.Context) error { return e.payOwed(ctx) }

// Left ends the run of a task as its Conn does for one that asynq has not taken.
func (e *Engine) Left(f broker.Fetched) *colocated.Release { return (*tasks)(e).Left(f) }

// Settle waits for what the queue does in the background.
func (e *Engine) Settle() { e.pending.Wait() }

// Of returns the options as they are for the end of a run: with its nonce.
func (o ParkOptions) Of(nonce string) ParkOptions {
	o.nonce = nonce
	return o
}

// Fetched returns the options for a task that was fetched with this message.
func (o ParkOptions) Fetched(message string) ParkOptions {
	o.deadline = deadlineOf(message)
	return o
}

// Unique returns the options for a task with this message, whose uniqueness lock it extends.
func (o ParkOptions) Unique(message string) ParkOptions {
	o.unique = textOf(message, uniqueField)
	return o
}

// Late returns the options of a run that asynq has given up.
func (o ParkOptions) Late() ParkOptions {
	o.late = true
	return o
}

// Postpone ends the run of a task that is tried again after opts.Look.
func (e *Engine) Postpone(ctx context.Context, t Task, opts ParkOptions) error {
	return e.postpone(ctx, t, opts)
}

// ErrNotYet is the error of a park for which asynq's lease has not ended.
var ErrNotYet = errNotYet

// Runs returns how many runs the Queue remembers.
func (e *Engine) Runs() int {
	e.runs.mu.Lock()
	defer e.runs.mu.Unlock()
	return len(e.runs.tasks)
}

// First returns the first of the Tasks; zero when there is none.
func (w Woken) First() Task {
	if len(w.Tasks) == 0 {
		return Task{}
	}
	return w.Tasks[0]
}

// ParkingAtFetch is what the Conns of an Engine have the scripts park and wake.
func (e *Engine) ParkingAtFetch() *broker.Parking { return e.parkingAtFetch() }

// Starve has the engine know that queues starve.
func (e *Engine) Starve(queues ...string) {
	s := &e.unserved
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.queues, s.starved = time.Now(), queues, len(queues)
}

// Began is [Run.BeginSuperseding] of a task that another process has fetched.
func Began(ctx context.Context, e *Engine, t Task, fetched time.Time) (time.Time, error) {
	return (&Run{queue: e, task: t, since: fetched}).BeginSuperseding(ctx)
}

// CarryOut is what a process does with the message of a supersession, once it has found the runs that hold the keys.
func CarryOut(ctx context.Context, e *Engine, s holdings.Supersession, held []holdings.Holding) error {
	return e.carryOut(ctx, s, held)
}

// CarryOutCancels looks for cancellations that are not over, as an Engine with a Conn does every 5 s.
func (e *Engine) CarryOutCancels(ctx context.Context) error { return e.carryOutCancels(ctx) }

// BeginLatest is [Run.BeginLatest] of a task.
func BeginLatest(ctx context.Context, e *Engine, t Task, header string) (by Task, err error) {
	return (&Run{queue: e, task: t}).BeginLatest(ctx, header)
}
