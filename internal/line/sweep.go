package line

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

var (
	//go:embed lua/sweep.lua
	sweepSource string

	sweepScript = redis.NewScript(sweepSource)
)

// Remnant is an active task whose run may be over.
type Remnant struct {
	Task
	// Run is the name of the run, or whatever else the task's hash has in its place.
	Run string
	// Silent reports whether its worker is dead. Otherwise it has no lease, so asynq never brings it back.
	Silent bool
}

// Sweep returns the remnants of a queue: the tasks whose runs have begun in a worker that is dead, and those that have had no
// lease of asynq's for so long since an earlier Sweep. One worker at a time looks after a queue, as long as it
// calls Sweep again within a time; ok is false for all others.
//
// It makes one call to Redis.
func (e *Engine) Sweep(
	ctx context.Context, queue, worker string, within, unleased time.Duration, dead []string,
) (all []Remnant, ok bool, err error) {
	names := strings.Join(dead, " ") + " "
	keys := []string{"railtoken:recovery:{" + queue + "}", asynqwire.Active(queue), asynqwire.Lease(queue), asynqwire.Hash(queue, "")}
	r := replyOf(sweepScript.Run(ctx, e.client, keys, worker, within.Milliseconds(), names,
		int(unleased.Seconds())))
	ok = r.err == nil && r.yes()
	for len(r.rest) > 0 && r.err == nil {
		all = append(all, Remnant{Task{queue, r.text()}, r.text(), r.yes()})
	}
	if r.err != nil {
		return nil, false, fmt.Errorf("look for tasks of dead workers in queue %s: %w", queue, r.err)
	}
	return all, ok, nil
}

// Left is what became of a [Remnant].
type Left int

const (
	// Over says that it was in that run no more, or asynq's recoverer may be at it. Nothing has changed.
	Over Left = iota
	// Back says that it is the next one of its queue to run. No retry was used up.
	Back
	// Counted says that so many of its runs have ended like this that asynq's recoverer is to count this one as a failure.
	Counted
	// Cancelled says that the run was cancelled, so the task has ended.
	Cancelled
)

// message reads asynq's message of a remnant and the keys that are recorded with it, encoded. ok is false if it is in that run no
// more.
func (e *Engine) message(ctx context.Context, m Remnant) (message, recorded string, ok bool, err error) {
	found, err := e.client.HMGet(ctx, m.Hash(), asynqwire.MessageField, "railtoken:keys", asynqwire.PendingSinceField).Result()
	if err != nil {
		return "", "", false, err
	}
	message, ok = found[0].(string)
	recorded, _ = found[1].(string)
	run, _ := found[2].(string)
	return message, recorded, ok && run == m.Run, nil
}

// TakeBack makes a remnant run again at once, unless the last deaths of its runs, this one included, have ended like this. If
// its worker is silent, free is called before with the keys that its run may have locked, as far as they are known: a task
// whose strategy does not wait would fail because of its own lock. It returns false if the worker has come back.
//
// It makes two calls to Redis. Each of them may be repeated.
func (e *Engine) TakeBack(ctx context.Context, m Remnant, deaths int, free func(keys []string) (silent bool, err error)) (Left, error) {
	message, recorded, ok, err := e.message(ctx, m)
	if err != nil || !ok {
		return Over, err
	}
	judge := "unleased"
	if m.Silent {
		judge = "silent"
		keys := decoded(recorded)
		for _, key := range decoded(e.parkers.keysNow(message)) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if silent, err := free(keys); err != nil || !silent {
			return Over, err
		}
	}
	back, err := e.sendBack(ctx, m.Task, message, message, "", judge, m.Run, deaths)
	switch left := Left(back); {
	case err == nil && left == Cancelled: // otherwise the next look of any server ends it
		return left, e.lookAtCancels(ctx, []string{m.Entry()})
	case left == Back && e.woken != nil:
		e.woken(m.Task)
	}
	return Left(back), err
}
