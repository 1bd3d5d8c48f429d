package parking

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqconn"
	"github.com/railtoken/railtoken/internal/keys"
)

var (
	//go:embed lua/enqueue.lua
	enqueueSource string

	enqueueScripts sync.Map // by their texts before asynq's
)

// Errors of [Engine.Enqueue]. Nothing was enqueued.
var (
	// ErrLocked reports that one of the locks is there.
	ErrLocked = errors.New("delayqueue: a lock is held")
	// ErrNotNow reports that a task was to run later.
	ErrNotNow = errors.New("delayqueue: a held key says nothing about a task that runs later or in a group: " +
		"leave out asynq.ProcessIn, ProcessAt and Group, or WhenHeld")
	// ErrForeign reports that asynq's scripts are those of a version that is not known.
	ErrForeign = errors.New("delayqueue: asynq's scripts are not known: " +
		"use the version of asynq that this build of railtoken supports")
)

// EnqueueOptions says what [Engine.Enqueue] does besides what asynq does. The zero value is nothing.
type EnqueueOptions struct {
	// Keys are recorded with the task, for a server that reads them before it fetches the task. Nothing depends on the
	// record.
	Keys []string
	// AtOnce refuses a task that is due later or joins a group: the error matches [ErrNotNow].
	AtOnce bool
	// Locks are the names of locks on the Redis of the tasks, in the slot of the queue. When one of them is there,
	// nothing is enqueued, and the error matches [ErrLocked].
	Locks []string
	// WaitFor, when not empty, is the key that the task waits for from the start: it is parked with ParkOptions, of
	// which Look and Limits count.
	WaitFor     string
	ParkOptions ParkOptions
}

// Enqueue enqueues a task through asynq, also once when the connection breaks before the answer is there, unless the task
// is done by the time that it is sent again. Errors other than those of this package are asynq's own. It makes one call
// to Redis, for a task that waits four or five more: should they fail, the task lies in the retry set, and its timer
// brings it back. Where asynq's scripts are not known, it is asynq's own enqueue; AtOnce is refused then.
func (e *Engine) Enqueue(ctx context.Context, task *asynq.Task, o EnqueueOptions, opts ...asynq.Option) (*asynq.TaskInfo,
	error,
) {
	a := &enqueuing{EnqueueOptions: o, call: rand.Text()}
	info, err := e.tasks.EnqueueContext(context.WithValue(ctx, enqueuingKey{}, a), task, opts...)
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
	place, err := e.parkInSteps(ctx, t, WaitersKey(o.WaitFor), park)
	if err != nil {
		place.Timer = park.RetryAfter
		e.log.WarnContext(ctx, "an enqueued task is not among the waiters; its timer will bring it back", "error",
			err)
	}
	info.State, info.NextProcessAt = asynq.TaskStateRetry, time.Now().Add(place.Timer)
	return info, nil
}

type enqueuingKey struct{}

// enqueuing is a task that is being enqueued.
type enqueuing struct {
	EnqueueOptions
	call   string
	unique string // the task's uniqueness lock, if it has one
	err    error
}

// answer runs our script in place of one of asynq's that enqueues a task.
func (e *Engine) answer(ctx context.Context, sent asynqconn.Enqueuing) *redis.Cmd {
	a, ok := ctx.Value(enqueuingKey{}).(*enqueuing)
	if !ok {
		a = &enqueuing{call: rand.Text()}
	}
	atOnce := a.AtOnce || len(a.Locks) > 0 || a.WaitFor != ""
	switch {
	case sent.Script == "" && !atOnce:
		return nil
	case sent.Script == "":
		a.err = ErrForeign
	case atOnce && !sent.Now():
		a.err = ErrNotNow
	}
	if a.err != nil {
		return failedCmd(ctx, a.err)
	}
	message, unique := 0, "nil" // where asynq's message is, and the uniqueness lock
	if sent.Script == "enqueueUnique" {
		message, unique, a.unique = 2, "KEYS[1]", sent.Keys[0]
	}
	t := Task{Queue: sent.Queue, ID: sent.ID}
	names := slices.Concat(sent.Keys, []string{t.Hash(), t.Prefix() + "pending", t.Prefix() + "retry"}, a.Locks)
	args := slices.Concat(sent.Args, []any{a.call, encoded(a.Keys)})
	sources := ""
	if a.WaitFor != "" {
		sources = taskSource + recordSource + stateSource
		encoded, _ := sent.Args[message].([]byte)
		args = append(args, WaitersKey(a.WaitFor), t.ID, time.Now().UnixNano(), a.ParkOptions.RetryAfter.Milliseconds(),
			a.ParkOptions.MaxAge.Milliseconds(),
			deadlineOf(string(encoded)))
	}
	head := fmt.Sprintf("local K, A, unique = %d, %d, %s\n%slocal function enqueue()%send\n", len(sent.Keys),
		len(sent.Args), unique, sources, sent.Text)
	script, ok := enqueueScripts.Load(head)
	if !ok {
		script, _ = enqueueScripts.LoadOrStore(head, redis.NewScript(head+enqueueSource))
	}
	//nolint:errcheck,forcetypeassert // nothing else is stored, and asynq gets the error
	cmd := script.(*redis.Script).Run(ctx, e.client, names, args...)
	if n, err := cmd.Int64(); err == nil && n < -1 {
		a.err = ErrLocked
		return failedCmd(ctx, a.err)
	}
	return cmd
}

// encoded returns keys as they are recorded: each as it stands in the names of its lock and its waiters, with blanks
// between them.
func encoded(all []string) string {
	parts := make([]string, len(all))
	for i, key := range all {
		parts[i] = keys.Encode(key)
	}
	return strings.Join(parts, " ")
}

// failedCmd returns the command that asynq gets for a script that has failed or was not sent.
func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
