// Package health decides whether a process with asynq servers is alive, and whether it is ready for tasks.
package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
)

// Limits are how long what a server needs may be missing.
type Limits struct {
	Unready time.Duration // before the server is not ready
	Dead    time.Duration // before its fetch loop counts as dead
}

// Defaults is longer than two of asynq's heartbeats, which are all that is known of Redis while every slot is busy, and
// longer than any call to Redis that has a timeout.
var Defaults = Limits{Unready: 15 * time.Second, Dead: time.Minute}

// Facts is what is known of a process.
type Facts struct {
	Now      time.Time
	Stopping bool
	Servers  []broker.Pulse
	Locks    Evidence
}

// Evidence is when something last worked, and the error of the last attempt if that has failed. Failing is then when the
// first attempt began that has failed since.
type Evidence struct {
	Last, Failing time.Time
	Err           error
}

// Unreachable returns for how long the Redis of the tasks has carried out no call of a server that runs, since the servers
// began at the earliest, and for how long no lock could be taken. It is below 6 s while Redis answers, because a server
// without a free slot sends only heartbeats.
func Unreachable(f Facts, began time.Time) (tasks, locks time.Duration) {
	for _, s := range f.Servers {
		if s.Over {
			continue
		}
		last := s.Answered
		if last.Before(began) {
			last = began
		}
		tasks = max(tasks, f.Now.Sub(last))
	}
	if f.Locks.Err != nil {
		locks = f.Now.Sub(f.Locks.Failing)
	}
	return tasks, max(locks, 0)
}

// Ready returns nil if the process can take tasks and run them, and everything that prevents it otherwise.
func (l Limits) Ready(f Facts) error {
	if f.Stopping {
		return errors.New("the server is shutting down")
	}
	var errs []error
	running := 0
	for _, s := range f.Servers {
		if s.Over {
			continue
		}
		running++
		switch {
		case s.Ended.IsZero() && s.Began.IsZero():
			errs = append(errs, errors.New("no task has been fetched yet: the server has not been started"))
		case !s.Worked && s.Err == nil:
			errs = append(errs, errors.New("the first fetch is under way"))
		case s.Err != nil && (!s.Worked || f.Now.Sub(s.Failing) > l.Unready):
			errs = append(errs, fmt.Errorf("tasks cannot be fetched%s: %w", since(s.Failing, f.Now), s.Err))
		case s.Busy && f.Now.Sub(s.Answered) > l.Unready: // it does not fetch: only heartbeats can tell
			errs = append(errs, fmt.Errorf("the Redis of the tasks has not answered%s", since(s.Answered, f.Now)))
		}
		if stuck := Stuck(s, f.Now); stuck > l.Unready {
			errs = append(errs, fmt.Errorf("the fetch loop has been stuck for %v", stuck.Round(time.Second)))
		}
	}
	if running == 0 {
		errs = append(errs, errors.New("no server runs"))
	}
	if f.Locks.Err != nil && f.Now.Sub(f.Locks.Last) > l.Unready {
		errs = append(errs, fmt.Errorf("no lock can be taken%s: %w", since(f.Locks.Last, f.Now), f.Locks.Err))
	}
	return errors.Join(errs...)
}

// Alive returns nil unless a fetch loop is stuck for good. A process cannot help an outage of Redis, and when it is
// stopped, tasks in its slots end with it. So the caller restarts it only if Redis answers a call besides.
func (l Limits) Alive(f Facts) error {
	if f.Stopping {
		return nil
	}
	for _, s := range f.Servers {
		if stuck := Stuck(s, f.Now); stuck > l.Dead {
			return fmt.Errorf("the fetch loop has been stuck for %v although Redis answers", stuck.Round(time.Second))
		}
	}
	return nil
}

// Stuck returns for how long a fetch loop should have gone on: in a fetch, or between two of them while a slot is free.
func Stuck(s broker.Pulse, now time.Time) time.Duration {
	switch {
	case s.Over:
		return 0
	case !s.Began.IsZero():
		return now.Sub(s.Began)
	case s.Busy || s.Ended.IsZero():
		return 0
	default:
		return max(now.Sub(s.Ended)-s.Interval, 0)
	}
}

// since says for how long something has been missing.
func since(last, now time.Time) string {
	if last.IsZero() {
		return ""
	}
	return fmt.Sprintf(" for %v", now.Sub(last).Round(time.Second))
}
