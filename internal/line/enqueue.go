package line

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	//go:embed lua/enqueue.lua
	enqueueSource string

	enqueueScripts sync.Map // by enqueueKind
)

// enqueueKind is a script that enqueues a task, by what comes before enqueue.lua. Only one that has the task wait needs the
// functions of parking.
type enqueueKind struct {
	head  string
	waits bool
}

// Errors of [Engine.Enqueue]. Nothing was enqueued.
var (
	// ErrLocked reports that one of the locks exists.
	ErrLocked = errors.New("delayqueue: a lock is held")
	// ErrNotNow reports that a task with AtOnce, Locks or WaitFor was to run later or in a group.
	ErrNotNow = errors.New("delayqueue: a held key says nothing about a task that runs later or in a group: " +
		"leave out asynq.ProcessIn, ProcessAt and Group, or WhenHeld")
	// ErrForeign reports that asynq's scripts are not known, so that it cannot do what was asked.
	ErrForeign = fmt.Errorf("delayqueue: %w: use asynq %s, or enqueue the task without an order and without Latest",
		broker.ErrAsynq, broker.Versions)
)

// EnqueueOptions says what [Engine.Enqueue] does beyond asynq. The zero value adds nothing.
type EnqueueOptions struct {
	// Keys are recorded with the task, for a server that reads them before it fetches the task. Nothing depends on the
	// record.
	Keys []string
	// InOrder is the key whose sequence the task is to join, which its hash names from the start; none when empty. A task
	// that is due later or joins a group names none.
	InOrder string
	// AtOnce refuses a task that is due later or joins a group: the error matches [ErrNotNow].
	AtOnce bool
	// Locks are the names of locks on the Redis of the tasks, in the slot of the queue. If one of them exists, nothing
	// is enqueued, and the error matches [ErrLocked].
	Locks []string
	// WaitFor, when not empty, is the key that the task waits for from the start: it is parked with the RetryAfter and
	// the limits of ParkOptions.
	WaitFor     string
	ParkOptions ParkOptions
}

// Enqueue enqueues a task through asynq. If the connection breaks before the reply arrives, the task is sent again and
// still enqueued once, unless it is done by then. Errors other than those of this package are asynq's own.
//
// It makes one call to Redis, and four or five more for a task that waits. If one of these fails, the task is in the
// retry set, and its timer brings it back. With an unsupported version of asynq it is asynq's own enqueue, and InOrder,
// AtOnce, Locks and WaitFor are refused with [ErrForeign].
func (e *Engine) Enqueue(
	ctx context.Context, task *asynq.Task, o EnqueueOptions, opts ...asynq.Option,
) (*asynq.TaskInfo, error) {
	a := &enqueuing{EnqueueOptions: o, call: rand.Text()}
	info, err := e.send(ctx, a, task, opts)
	switch {
	case a.err != nil:
		return nil, a.err
	case err != nil || o.WaitFor == "":
		return info, err
	}
	ctx, cancel := outlasting(ctx, afterCancel)
	defer cancel()
	park := o.ParkOptions
	park.nonce, park.Attempt, park.unique = a.call, 0, a.unique
	t := Task{Queue: info.Queue, ID: info.ID}
	parked, err := e.parkInSteps(ctx, t, e.names.Waiters(o.WaitFor), park)
	if err != nil {
		parked.Timer = park.RetryAfter
		e.log.WarnContext(ctx, "an enqueued task is not among the waiters; its timer will bring it back", "error",
			err)
	}
	info.State, info.NextProcessAt = asynq.TaskStateRetry, time.Now().Add(parked.Timer)
	return info, nil
}

type enqueuingKey struct{}

// enqueuing is a call of Enqueue that asynq carries out.
type enqueuing struct {
	EnqueueOptions
	call   string
	unique string // the task's uniqueness lock, if it has one
	latest *Latest
	placed Placed // with latest
	into   string // the queue that it belongs into, if it is another than asynq was told
	err    error
}

// answer runs enqueue.lua in place of a script of asynq that enqueues a task.
func (e *Engine) answer(ctx context.Context, sent broker.Enqueuing) *redis.Cmd {
	a, ok := ctx.Value(enqueuingKey{}).(*enqueuing)
	if !ok {
		a = &enqueuing{call: rand.Text()}
	}
	if away, err := e.reroutes(a, sent); away || err != nil {
		a.err = err
		return failedCmd(ctx, cmp.Or(err, errRerouted))
	}
	if a.latest != nil {
		return e.answerLatest(ctx, a, sent)
	}
	atOnce := a.AtOnce || len(a.Locks) > 0 || a.WaitFor != ""
	switch {
	case sent.Script == "" && !atOnce && a.InOrder == "":
		return nil
	case sent.Script == "":
		a.err = ErrForeign
	case atOnce && !sent.Now():
		a.err = ErrNotNow
	}
	if a.err != nil {
		return failedCmd(ctx, a.err)
	}
	message, unique := 0, "nil" // the index of asynq's message in its arguments, and the uniqueness lock
	if sent.Script == "enqueueUnique" {
		message, unique, a.unique = 2, "KEYS[1]", sent.Keys[0]
	}
	t := Task{Queue: sent.Queue, ID: sent.ID}
	names := slices.Concat(sent.Keys, []string{t.Hash(), asynqwire.Pending(t.Queue), asynqwire.Retry(t.Queue)}, a.Locks)
	mark := ""
	if a.InOrder != "" && sent.Now() {
		mark = e.names.Sequence(a.InOrder) + " enqueued"
	}
	args := slices.Concat(sent.Args, []any{a.call, e.names.encoded(a.Keys), mark})
	if a.WaitFor != "" {
		encoded, _ := sent.Args[message].([]byte)
		args = append(args, e.names.Waiters(a.WaitFor), t.ID, time.Now().UnixNano(), a.ParkOptions.RetryAfter.Milliseconds(),
			a.ParkOptions.MaxAge.Milliseconds(),
			deadlineOf(string(encoded)), a.ParkOptions.Foremost)
	}
	head := fmt.Sprintf("local K, A, unique = %d, %d, %s\n%s", len(sent.Keys), len(sent.Args), unique, sent.Function())
	kind := enqueueKind{head, a.WaitFor != ""}
	script, ok := enqueueScripts.Load(kind)
	if !ok {
		library := lanes.Functions
		if kind.waits {
			library = functions
		}
		script, _ = enqueueScripts.LoadOrStore(kind, redis.NewScript(rediswire.Compose(library, head+enqueueSource)))
	}
	//nolint:errcheck,forcetypeassert // nothing else is stored, and asynq gets the error
	cmd := script.(*redis.Script).Run(ctx, e.client, names, args...)
	if n, err := cmd.Int64(); err == nil && n < -1 {
		a.err = ErrLocked
		return failedCmd(ctx, a.err)
	}
	return cmd
}

// failedCmd returns the command that asynq gets for a script that was not sent, or has failed.
func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// afterCancel is how long an enqueued task may still join its sequence after the caller has cancelled.
const afterCancel = time.Second

// outlasting returns a context that ends some time after ctx.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}
