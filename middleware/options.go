package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// Options configures [Lock]. Locker, Key and Strategy must be set; every other field has a default.
type Options struct {
	// Locker locks the keys.
	Locker locking.Locker

	// Key returns the business keys of a task.
	Key KeyFunc

	// Strategy decides what happens to a task in conflict. It must not park tasks: only package attach and package worker
	// have a place for them.
	Strategy Strategy

	// TTL and MaxHold are as in [locking.Options]: 30 s and 30 min when zero. TTL must be below 55 s, because asynq may
	// bring back the task of a crashed worker after that time. A warning is logged once for each type of task that may
	// run for longer than MaxHold (asynq.Timeout, asynq.Deadline).
	TTL, MaxHold time.Duration

	// Label identifies this process to tasks that are refused a key; "host/pid" when empty. The type and ID of the task
	// are appended to it.
	Label string

	// MaxKeySize is the maximum length of a key in bytes; 1024 when zero. MaxKeys is the maximum number of keys of a
	// task; 100 when zero.
	MaxKeySize, MaxKeys int

	// SlotBudget is the maximum number of tasks that wait in their slots; half of the server's Concurrency when zero, or of
	// the number of CPUs where it is not known, but at least one. None when negative.
	SlotBudget int

	// Observer receives every event; nil disables it.
	Observer Observer

	// Logger receives failures and other messages for operators, with hashed keys; nil disables it.
	Logger *slog.Logger
}

// Validate returns an error that lists all problems with the options, or nil.
func (o Options) Validate() error { return o.validate(&taskrun.Server{}) }

// validate is Validate for the handlers of a server.
func (o Options) validate(on *taskrun.Server) error {
	var errs []error
	if o.Locker == nil {
		errs = append(errs,
			errors.New("middleware: Locker is not set: give a locking.Locker, such as locking.NewSingle"))
	}
	if o.Key == nil {
		errs = append(errs,
			errors.New("middleware: Key is not set: say how a task's key is found, for example with PayloadKey"))
	}
	if o.MaxKeySize < 0 {
		errs = append(errs, fmt.Errorf("middleware: MaxKeySize is %d: it cannot be negative", o.MaxKeySize))
	}
	if o.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("middleware: MaxKeys is %d: it cannot be negative", o.MaxKeys))
	}
	if v, ok := o.Strategy.(validator); ok {
		errs = append(errs, v.Validate())
	}
	if on.Queue == nil && needsQueue(o.strategy()) {
		errs = append(errs,
			errors.New("middleware: the strategy may park tasks, but there is no place for them: "+
				"make the middleware with package attach or worker, or let the strategy end in FailFast"))
	}
	errs = append(errs, locking.Options{TTL: o.TTL, MaxHold: o.MaxHold}.Validate())
	if o.TTL >= taskrun.MaxTTL {
		errs = append(errs,
			fmt.Errorf("middleware: TTL is %v: it must be below %v, because asynq brings back the task of a crashed worker "+
				"after 55 to 120 s: lower it; a lease renews itself as long as the handler runs", o.TTL, taskrun.MaxTTL))
	}
	return errors.Join(errs...)
}

func (o Options) strategy() Strategy {
	if o.Strategy == nil {
		return Requeue{}
	}
	return o.Strategy
}
