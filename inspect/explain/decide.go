package explain

import (
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
)

// diedAfter is how long asynq's lease on a task must have ended for its worker to count as dead: a heartbeat may be
// late.
const diedAfter = 5 * time.Second

// Explanation says why a task does not run. Its JSON names do not change between releases.
type Explanation struct {
	Task  string  `json:"task"` // queue/id
	Type  string  `json:"type,omitempty"`
	State string  `json:"state"` // in asynq's words; "gone" if asynq knows no such task
	Cause Cause   `json:"cause"`
	Also  []Cause `json:"also,omitempty"` // what would hold it up next

	Key string `json:"key,omitempty"` // the one that it waits for
	// OtherKeys are further keys that it waits for: the first of all its keys that is released brings it back.
	OtherKeys []string `json:"other_keys,omitempty"`
	// Position counts from 1: in the sequence of the key if its tasks run in order, otherwise among the waiters.
	Position  int        `json:"position,omitempty"`
	Waiters   int        `json:"waiters,omitempty"`
	Conflicts int        `json:"conflicts,omitempty"`
	Since     *time.Time `json:"waiting_since,omitempty"` // its first refusal
	// Supersedes is the group of tasks that it supersedes, if it waits for that. Group names are bytes: what is no UTF-8 is replaced in JSON.
	Supersedes string `json:"supersedes,omitempty"`

	Holder     string     `json:"holder,omitempty"`      // its label
	HolderTask string     `json:"holder_task,omitempty"` // queue/id; empty if it is unknown, or if the holder is not a task
	HeldSince  *time.Time `json:"held_since,omitempty"`
	// Worker is host/PID of the process that runs the task; empty if it does not run, or if that is not known.
	Worker string `json:"worker,omitempty"`

	// Deaths is how many of its last runs have ended with their workers, and were taken back (attach.Recovery).
	Deaths int `json:"deaths,omitempty"`

	// Timer is when the task runs again by itself, if nothing brings it back sooner.
	Timer *time.Time `json:"timer,omitempty"`
	// Expected says in words when the task should start.
	Expected string `json:"expected_start"`
	// Why states the cause in a sentence. Remedy says what an operator can do; empty if nothing needs to be done.
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
}

// decide explains the facts.
func decide(f facts) Explanation {
	if f.refuses != nil { // no server and no lease of asynq can be renewed there, so these tell nothing
		f.unserved, f.sequence.unserved, f.lease, f.silent = false, false, time.Time{}, 0
	}
	e := Explanation{
		Task: f.task.String(), Type: f.taskType, State: f.state, Key: f.key, Position: f.position, Waiters: f.waiters,
		OtherKeys: f.others, Conflicts: f.conflicts, Supersedes: f.supersedes, Deaths: f.deaths, Since: moment(f.first), Timer: moment(f.due),
	}
	if f.sequence.position > 0 {
		e.Position = f.sequence.position
	}
	if e.State == "" {
		e.State = string(delayqueue.StateGone)
	}
	e.Worker = f.runner
	if f.holds && f.holder != nil {
		e.HeldSince = moment(f.holder.Since)
	} else if f.holder != nil {
		e.Holder, e.HeldSince = f.holder.Label, moment(f.holder.Since)
		if f.by != (delayqueue.Task{}) {
			e.HolderTask = f.by.String()
		}
	}
	for i, cause := range causes(f) {
		if i > 0 {
			e.Also = append(e.Also, cause)
			continue
		}
		e.Cause = cause
	}
	words(&e, f)
	return e
}

// causes returns everything that holds the task up, first what an operator must or can do something about.
func causes(f facts) []Cause {
	switch f.state {
	case "":
		return []Cause{NoSuchTask}
	case "completed":
		return []Cause{Completed}
	case "aggregating":
		return []Cause{InGroup}
	case "archived":
		if f.refused != nil && f.refused.Limit != delayqueue.NoLimit {
			return []Cause{LimitReached}
		}
		return []Cause{Archived}
	}
	var all []Cause
	if f.refuses != nil {
		all = append(all, RefusesWrites)
	}
	if f.state == "active" {
		return append(all, active(f)...)
	}
	if !f.deadline.IsZero() && f.now.After(f.deadline) {
		all = append(all, Overdue)
	}
	if f.paused {
		all = append(all, QueuePaused)
	} else if f.unserved {
		all = append(all, QueueUnserved)
	}
	switch {
	case f.state == "pending":
		return append(all, append(servers(f), InBacklog)...)
	case f.state == "scheduled":
		return append(all, Scheduled)
	case f.key != "":
		return append(append(all, servers(f)...), forKey(f)...)
	case f.postponed:
		return append(all, append(servers(f), RetryLater)...)
	case f.conflicts > 0:
		return append(all, LimitReached) // it found the waiters full
	default:
		return append(all, RetryLater)
	}
}

// active returns what holds up a task that occupies a slot.
func active(f facts) []Cause {
	switch {
	case !f.lease.IsZero() && f.now.After(f.lease.Add(diedAfter)):
		return []Cause{WorkerDied}
	case asynqwire.Silence(f.lease, f.now) > asynqwire.SilentAfter:
		return []Cause{WorkerSilent}
	case f.holds:
		return []Cause{Running}
	case len(servers(f)) > 0: // holders are known, and no other task can lock a key now
		return servers(f)
	case f.holder != nil:
		return heldUp(f, WaitsInSlot)
	default:
		return []Cause{Running}
	}
}

// servers returns what is wrong with the lock servers.
func servers(f facts) []Cause {
	switch {
	case !f.votes.quorum(f.votes.reached):
		return []Cause{NoQuorum}
	case !f.votes.quorum(f.votes.may):
		return []Cause{Quarantined}
	default:
		return nil
	}
}

// forKey returns what holds up a task that is parked.
func forKey(f facts) []Cause {
	switch {
	case f.sequence.position == 1 && f.position == 0 && !f.putBack: // it is the head of its sequence, and has failed
		return []Cause{RetryLater}
	case f.sequence.position > 1 && f.sequence.failed:
		return []Cause{BehindFailed}
	case f.sequence.position > 1 && f.sequence.paused:
		return []Cause{Behind, QueuePaused}
	case f.sequence.position > 1 && f.sequence.unserved:
		return []Cause{Behind, QueueUnserved}
	case f.sequence.position > 1, f.sequence.position == 0 && f.position > 1:
		return heldUp(f, Behind)
	case f.holder != nil:
		return heldUp(f, Held)
	default:
		return []Cause{KeyFree}
	}
}

// heldUp adds to a cause that the worker of the holder is silent.
func heldUp(f facts, cause Cause) []Cause {
	if f.silent > 0 {
		return []Cause{cause, WorkerSilent}
	}
	return []Cause{cause}
}
