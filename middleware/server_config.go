package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/itemrun"
	"github.com/railtoken/railtoken/internal/parking"
)

// ServerConfig returns cfg as a server with [Lock] needs it: a task that waits for a key, or for lock servers that
// cannot be reached, has not failed, uses up no retry, is tried again when it is due, and stays out of the error
// handler, so that an error tracker does not fill up with conflicts. cfg's own IsFailure, RetryDelayFunc and
// ErrorHandler judge all other errors.
func ServerConfig(cfg asynq.Config) asynq.Config {
	cfg.IsFailure, cfg.RetryDelayFunc = isFailure(cfg.IsFailure), retryDelay(cfg.RetryDelayFunc)
	if cfg.ErrorHandler != nil {
		cfg.ErrorHandler = failures(cfg.ErrorHandler)
	}
	return cfg
}

func isFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if _, ok := waits(err); ok {
			return false
		}
		if next != nil {
			return next(err)
		}
		return err != nil
	}
}

func retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if next == nil {
		next = asynq.DefaultRetryDelayFunc
	}
	return func(n int, err error, task *asynq.Task) time.Duration {
		if delay, ok := waits(err); ok {
			return parking.WholeSeconds(time.Now(), delay)
		}
		if delayed, ok := errors.AsType[*itemrun.DelayedError](err); ok {
			return parking.WholeSeconds(time.Now(), delayed.Delay)
		}
		return next(n, err, task)
	}
}

// failures returns a handler that gets all errors but those of tasks that wait.
func failures(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if _, waiting := waits(err); !waiting {
			next.HandleError(ctx, task, err)
		}
	})
}

// waits reports whether err is that of a task that goes on waiting, and for how long.
func waits(err error) (time.Duration, bool) {
	if conflict, ok := errors.AsType[*ConflictError](err); ok && conflict.Outcome == Park {
		return conflict.RetryAfter, true
	}
	if unavailable, ok := errors.AsType[*unavailableError](err); ok {
		return unavailable.delay, true
	}
	if parked, ok := errors.AsType[*parking.WaitError](err); ok {
		return parked.RetryAfter, true
	}
	if paused, ok := errors.AsType[*itemrun.PausedError](err); ok {
		return paused.Delay, true
	}
	return 0, false
}
