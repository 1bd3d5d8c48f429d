package line

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/ends"
)

// A task that runs is cancelled by word in its hash (CancelField), a message to the processes (cancelChannel), and an entry in
// the sorted set of cancellations that are not known to be over (cancelsKey), by when they were asked for (ms). The word is what
// counts. The message may be lost: then the run learns of it by the entry.
const (
	// CancelField is the word in the hash of a task.
	CancelField   = "railtoken:cancel"
	cancelsKey    = "railtoken:cancelled"
	cancelChannel = "railtoken:cancel"
	// cancelsLook is the time between two looks at the entries, and cancelsMost how many are read in one round trip.
	cancelsLook = 5 * time.Second
	cancelsMost = 100
)

// Cancellation says how a task is to end, and who has cancelled it, and why.
type Cancellation struct {
	Discard bool   `json:"discard,omitempty"` // it is deleted instead of archived
	By      string `json:"by"`
	Why     string `json:"why,omitempty"`
}

// String is the error of the task.
func (c Cancellation) String() string {
	text := cancelledBy + c.By
	if c.Why != "" {
		text += ": " + c.Why
	}
	return text
}

// ending returns how a task ends that does not run.
func (c Cancellation) ending() ending {
	how := ending{end: ends.End{State: ends.Deleted, Cause: ends.Cancelled, By: c.By, Why: c.Why}}
	if !c.Discard {
		how.end.State = ends.Archived
		how.added = string(protowire.AppendString(protowire.AppendTag(nil, errorField, protowire.BytesType), c.String()))
	}
	return how
}

const cancelledBy = "railtoken: cancelled by "

// CancellationIn returns the cancellation that the last error of a task tells of. It takes what is before the first colon for the
// name of a person.
func CancellationIn(lastErr string) (c Cancellation, ok bool) {
	text, ok := strings.CutPrefix(lastErr, cancelledBy)
	c.By, c.Why, _ = strings.Cut(text, ": ")
	return c, ok
}

// ParseCancellation reads what a task's hash has in [CancelField].
func ParseCancellation(word string) (c Cancellation, ok bool) {
	return c, json.Unmarshal([]byte(word), &c) == nil
}

// ErrNotAttached reports that a task runs on a server that cannot be told.
var ErrNotAttached = errors.New("the task runs on a server without railtoken, which cannot be told: cancel it with " +
	"asynq's Inspector.CancelProcessing")

// Cancel ends a task. One that does not run ends at once, leaves its line, and the task behind it is woken: Cancel returns
// [Ended]. Of one that runs, it tells the run, and returns [Told]: the context of the handler ends, and the task ends as c says
// when the handler returns with an error. Otherwise Cancel returns the state of the task, which stays: archived, completed,
// aggregating, or gone.
func (e *Engine) Cancel(ctx context.Context, t Task, c Cancellation) (string, error) {
	word, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	how := c.ending()
	how.word = string(word)
	what, run, err := e.end(ctx, t, how)
	switch {
	case err != nil || what != Told:
		return what, err
	case run == "":
		return what, ErrNotAttached
	}
	at := redis.Z{Score: float64(time.Now().UnixMilli()), Member: t.Entry()}
	if err := e.client.ZAdd(ctx, cancelsKey, at).Err(); err != nil {
		return what, fmt.Errorf("the run may not have been told: %w: repeat this", err)
	}
	if err := e.client.Publish(ctx, cancelChannel, t.Entry()).Err(); err != nil {
		e.log.WarnContext(ctx, "a run that was cancelled was not told at once; it learns of it within seconds", "error", err)
	}
	return what, nil
}

// followCancels has the runs of this process learn of cancellations until the Engine is closed.
func (e *Engine) followCancels() {
	_, _ = e.messages.Follow(cancelChannel, func(entry string) {
		if e.runs.of(taskOf(entry)) == nil {
			return
		}
		e.background(e.closing, followUpLimit, func(ctx context.Context) {
			if err := e.lookAtCancels(ctx, []string{entry}); err != nil {
				e.log.WarnContext(ctx, "a run could not be told that it was cancelled; it learns of it within seconds", "error", err)
			}
		})
	}) // it fails once the Engine is closed
}

// carryOutCancels looks for cancellations that are not over. If there are none, it makes one call to Redis.
func (e *Engine) carryOutCancels(ctx context.Context) error {
	entries, err := e.client.ZRange(ctx, cancelsKey, 0, -1).Result()
	errs := []error{err}
	for some := range slices.Chunk(entries, cancelsMost) { // handlers that ignore their contexts may have left many
		errs = append(errs, e.lookAtCancels(ctx, some))
	}
	return errors.Join(errs...)
}

// lookAtCancels carries out cancellations: it tells the runs of this process, ends tasks that have not come to their runs or are to
// be retried, and removes what is over.
func (e *Engine) lookAtCancels(ctx context.Context, entries []string) error {
	found := make([]*redis.SliceCmd, len(entries))
	_, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, entry := range entries {
			found[i] = p.HMGet(ctx, taskOf(entry).Hash(), asynqwire.StateField, CancelField, asynqwire.PendingSinceField)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for i, entry := range entries {
		t, fields := taskOf(entry), found[i].Val()
		state, _ := fields[0].(string)
		word, _ := fields[1].(string)
		name, _ := fields[2].(string)
		c, ok := ParseCancellation(word)
		switch {
		case !ok: // the task is gone, or was enqueued again
			errs = append(errs, e.client.ZRem(ctx, cancelsKey, entry).Err())
		case state == "active":
			if r := e.runs.of(t); r != nil && r.nonce == name {
				r.cancel(c)
			}
		default:
			what, err := e.Cancel(ctx, t, c)
			if err == nil && what != Told { // otherwise it has begun to run meanwhile
				err = e.uncancel(ctx, t)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// uncancel removes what a cancellation that is over has left.
func (e *Engine) uncancel(ctx context.Context, t Task) error {
	return errors.Join(e.client.HDel(ctx, t.Hash(), CancelField).Err(), e.client.ZRem(ctx, cancelsKey, t.Entry()).Err())
}

// OnCancel has cancelled called when the task is cancelled, from another goroutine, and at once if it was already. It must be
// quick.
func (r *Run) OnCancel(cancelled func(Cancellation)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onCancel = cancelled
	if r.cancelled != nil {
		cancelled(*r.cancelled)
	}
}

// cancel tells the run that its task was cancelled.
func (r *Run) cancel(c Cancellation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancelled == nil {
		r.cancelled = &c
		if r.onCancel != nil {
			r.onCancel(c)
		}
	}
}

// afterCancel returns what is to be done after the acknowledgement of a run whose task was cancelled: what is left of the
// cancellation is removed, so that the task is not cancelled again if an operator runs it again.
func (r *Run) afterCancel(ended func()) func() {
	return func() {
		if ended != nil {
			ended()
		}
		e := r.queue
		e.background(e.closing, followUpLimit, func(ctx context.Context) { _ = e.uncancel(ctx, r.task) }) // or else the next look does it
	}
}
