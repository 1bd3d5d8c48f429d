package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware"
)

// Handler describes how tasks of one type are processed: the format of their payload, the keys that they lock, and what
// happens when another task holds one of them. Run must be set, and Keys unless Unlocked is; every other field has a
// default.
type Handler[T any] struct {
	// Run processes the task. Its context carries the lease (locking.FromContext) and ends, with a cause, when the
	// lease is lost.
	Run func(ctx context.Context, payload T) error

	// Keys returns the business keys of a payload; make them with [middleware.Key]. They are locked together or not at
	// all. The task is archived if there is no key or an empty one, or if there are several keys and the Strategy keeps
	// an order. Keys and Decode are called before the run of a task, too, so that the locks of all tasks of a fetch are taken
	// in one call: let them depend on the task alone.
	Keys func(payload T) []string

	// Decode decodes the payload of a task; from JSON when nil. If it fails, the task is archived.
	Decode func(task *asynq.Task) (T, error)

	// Strategy decides what happens in a conflict; the worker's strategy when nil.
	Strategy middleware.Strategy

	// TTL and MaxHold are as in locking.Options; the worker's values when zero. If the task's timeout (asynq.Timeout,
	// 30 min by default) is longer than MaxHold, the task may lose its lock while it runs, and a warning is logged.
	TTL, MaxHold time.Duration

	// Group and OnSuperseded are as in attach.LockOptions: which tasks may supersede those of this type, and what becomes of these.
	Group        string
	OnSuperseded middleware.Outcome

	// Unlocked runs the handler without locks, for tasks that need no exclusion.
	Unlocked bool
}

// Handle registers a handler for the tasks of exactly the given type. If the handler is invalid, Handle reports all
// problems in one error. Register all handlers before the worker starts.
func Handle[T any](w *Worker, taskType string, h Handler[T]) error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("worker: handler of %q: "+format, append([]any{taskType}, args...)...))
	}
	if taskType == "" {
		fault("the type of its tasks is empty")
	}
	if h.Run == nil {
		fault("Run is not set")
	}
	if h.Keys == nil && !h.Unlocked {
		fault("Keys is not set: return the business keys to lock, or set Unlocked")
	}
	if h.Keys != nil && h.Unlocked {
		fault("both Keys and Unlocked are set: choose one")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if h.Unlocked {
		return w.register(taskType,
			w.attached.Unlocked(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				payload, err := h.decode(task)
				if err != nil {
					return &middleware.KeyError{Type: taskType, Err: err}
				}
				return h.Run(ctx, payload)
			})))
	}
	lock, err := w.attached.LockWith(attach.LockOptions{
		Strategy: h.Strategy, TTL: h.TTL, MaxHold: h.MaxHold, Group: h.Group, OnSuperseded: h.OnSuperseded,
		Key: taskrun.KnownEarly(func(ctx context.Context, task *asynq.Task) ([]string, error) {
			payload, err := h.decode(task)
			if err != nil {
				return nil, err
			}
			if run, ok := ctx.Value(payloadKey{}).(*T); ok {
				*run = payload
			}
			return h.Keys(payload), nil
		}),
	})
	if err != nil {
		return fmt.Errorf("worker: handler of %q: %w", taskType, err)
	}
	handler := lock(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		payload, _ := ctx.Value(payloadKey{}).(*T)
		return h.Run(ctx, *payload)
	}))
	return w.register(taskType, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return handler.ProcessTask(context.WithValue(ctx, payloadKey{}, new(T)), task)
	}))
}

// payloadKey is the context key of a pointer to the payload. The payload is decoded once, when its keys are needed, and
// the handler takes it from there.
type payloadKey struct{}

// decode decodes the payload of a task.
func (h Handler[T]) decode(task *asynq.Task) (payload T, err error) {
	if h.Decode != nil {
		payload, err = h.Decode(task)
	} else {
		err = json.Unmarshal(task.Payload(), &payload)
	}
	if err != nil {
		err = fmt.Errorf("the payload cannot be decoded: %w", err)
	}
	return payload, err
}
