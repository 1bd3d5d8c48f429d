package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
)

// ServerConfig returns a copy of cfg for a server with [Lock]. attach.Attached.Config and package worker include it. A
// task that waits for a key, or for lock servers that cannot be reached, has not failed: it uses up no retry, is tried
// again when it is due, and does not reach the error handler, so that conflicts do not flood an error tracker. All other
// errors are left to cfg's own IsFailure, RetryDelayFunc and ErrorHandler. It leaves asynq's intervals alone, so an idle
// server still looks for tasks once per second; with package attach it starts a woken task at once.
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
			return line.WholeSeconds(time.Now(), delay)
		}
		if delayed, ok := errors.AsType[*taskrun.DelayedError](err); ok {
			return line.WholeSeconds(time.Now(), delayed.Delay)
		}
		return next(n, err, task)
	}
}

// failures returns an error handler that receives all errors except those of waiting tasks.
func failures(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if _, waiting := waits(err); !waiting {
			next.HandleError(ctx, task, err)
		}
	})
}

// waits reports whether err is that of a task that keeps waiting, and the time until its next attempt.
func waits(err error) (time.Duration, bool) {
	if conflict, ok := errors.AsType[*ConflictError](err); ok && conflict.Outcome == Park {
		return conflict.RetryAfter, true
	}
	if unavailable, ok := errors.AsType[*unavailableError](err); ok {
		return unavailable.delay, true
	}
	if parked, ok := errors.AsType[*line.WaitError](err); ok {
		return parked.RetryAfter, true
	}
	if paused, ok := errors.AsType[*taskrun.PausedError](err); ok {
		return paused.Delay, true
	}
	return 0, false
}
