package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/locking"
)

// recoveredAfter is how long asynq's recoverer leaves alone a task whose lease has ended.
const recoveredAfter = 30 * time.Second

// words writes the explanation out.
func words(e *Explanation, f facts) {
	q := f.task.Queue
	switch e.Cause {
	case NoSuchTask:
		e.Why = "asynq knows no task " + strings.TrimPrefix(f.task.String(), "/") + ": it has succeeded, it was deleted, or it was never enqueued"
		e.Expected = "never"
	case Running:
		e.Why, e.Expected = "its handler runs"+inWorker(f)+ofKey(f), "it has started"
		if f.cancelled != "" {
			e.Why += "; " + f.cancelled + ", and its handler has not returned yet"
		}
		if f.holds && f.waiters > 0 {
			e.Remedy = ofLongHold(f)
		}
	case WorkerSilent:
		e.Why = "its handler runs" + cmp.Or(inWorker(f), " in a worker") + unheard(asynqwire.Silence(f.lease, f.now)) + ofKey(f)
		e.Expected = "soon, without a retry, if another worker of its queue takes it back (attach.Recovery); else again after its " +
			"retry delay: a running server brings it back at " + at(f.lease.Add(recoveredAfter)) +
			" or within a minute after that, and the run counts as failed"
		e.Remedy = "see whether that process is stopped or has lost its network"
		if f.holds && f.holder != nil {
			e.Remedy += "; " + ofDeadHolder(f)
		}
	case RefusesWrites:
		e.Why = "the Redis of the tasks answers, but refuses writes: " + f.refuses.Error()
		e.Expected, e.Remedy = "when Redis accepts writes again", "railtoken doctor names the cause and what to do"
	case WaitsInSlot:
		e.Why = "it waits in a worker slot for its key, which is held by " + holderOf(f)
		e.Expected, e.Remedy = "as soon as the key is released", ofHold(f)
	case Held:
		e.Why = "it is next, and its key is held by " + holderOf(f) + superseding(f)
		e.Expected, e.Remedy = "as soon as the key is released"+orOther(f)+latest(f), ofHold(f)
	case Behind:
		e.Why = "it is behind " + tasks(e.Position-1)
		if f.sequence.position > 1 {
			e.Why += ", the first of which is " + f.sequence.first.String() + " (" + f.sequence.state + ")"
		}
		if f.holder != nil {
			e.Why += "; its key is held by " + holderOf(f)
		}
		e.Why += superseding(f)
		e.Expected = "when the tasks before it are done" + orOther(f) + latest(f)
		e.Remedy = fmt.Sprintf("to let it run next: railtoken put-first %s", f.task)
		if f.sequence.position > 0 || f.silent > 0 {
			e.Remedy = ""
		}
		first := f.sequence.first.Queue
		switch {
		case f.sequence.position < 2:
		case f.sequence.paused:
			e.Why += fmt.Sprintf("; queue %q of that task is paused, and no task overtakes it", first)
			e.Remedy = "resume the queue: railtoken unpause " + first
		case f.sequence.unserved:
			e.Why += fmt.Sprintf("; no running server works on queue %q of that task, and no task overtakes it", first)
			e.Remedy = fmt.Sprintf("start a worker that serves queue %q", first)
		}
		e.Remedy = both(ofHold(f), e.Remedy)
	case BehindFailed:
		e.Why = "its tasks run in order, and the first of them, " + f.sequence.first.String() + ", has failed"
		if f.sequence.lastErr != "" {
			e.Why += " (" + f.sequence.lastErr + ")"
		}
		e.Expected = "when that task has succeeded or is archived; it is retried at " + at(f.sequence.due)
		e.Remedy = "repair what makes that task fail, or delete it: railtoken drop " + f.sequence.first.String()
	case QueuePaused:
		e.Why, e.Expected = fmt.Sprintf("queue %q is paused", q), "when the queue is resumed"
		e.Remedy = "resume the queue: railtoken unpause " + q
	case QueueUnserved:
		e.Why, e.Expected = fmt.Sprintf("no running server works on queue %q", q), "when a server works on the queue"
		e.Remedy = fmt.Sprintf("start a worker that serves queue %q", q)
	case RetryLater:
		e.Why = fmt.Sprintf("it has failed %d of %d times", f.retried, f.most+1)
		switch {
		case f.postponed:
			e.Why = "its last run could not reach the lock servers, and it was postponed"
		case f.lastErr != "":
			e.Why += ", the last time with: " + f.lastErr
		case f.retried == 0:
			e.Why = "it has not failed, but is tried again by its timer"
		}
		e.Expected, e.Remedy = "at "+at(f.due), both(ofHead(f), ofFailed(f))
	case Scheduled:
		e.Why, e.Expected, e.Remedy = "its time has not come", "at "+at(f.due), ofHead(f)
	case LimitReached:
		limit(e, f)
	case NoQuorum:
		e.Why = fmt.Sprintf("only %d of %d lock servers can be reached, which is no majority: %s",
			f.votes.reached, f.votes.servers, strings.Join(f.votes.refusals, "; "))
		e.Expected = "when a majority can be reached" + latest(f)
		e.Remedy = "start the lock servers, or mend the network to them"
	case Quarantined:
		e.Why = fmt.Sprintf("only %d of %d lock servers may vote, which is no majority: %s",
			f.votes.may, f.votes.servers, strings.Join(f.votes.refusals, "; "))
		e.Expected = "when a majority may vote"
		if !f.votes.quarantined.IsZero() {
			e.Expected += ", at " + at(f.votes.quarantined)
		}
		e.Expected += latest(f)
	case InBacklog:
		e.Why = fmt.Sprintf("it waits for a free slot, behind %s of queue %q", tasks(f.pending), q)
		e.Expected = "when a server has a free slot for it"
	case KeyFree:
		e.Why, e.Expected = "nothing holds its key", "within a second, or "+strings.TrimPrefix(latest(f), ", and ")
		if f.unseen != "" {
			e.Why = "no worker has reported that its key is held, and locks in another store (" + f.unseen + ") cannot be seen"
		}
		e.Remedy = "if it stays so, its wake was lost: railtoken wake " + quoted(f.key)
	case WorkerDied:
		e.Why = "its worker has not renewed asynq's lease, which ended at " + at(f.lease) + ": it has died, or stood still"
		e.Expected = "soon, without a retry, if another worker of its queue takes it back (attach.Recovery); else again after its " +
			"retry delay: a running server brings it back within two minutes, and the run counts as failed"
	case Archived:
		e.Why, e.Expected = "it was archived after its last failure", "never"
		switch {
		case f.refused != nil:
			e.Key, e.Holder, e.HeldSince = f.refused.Key, f.refused.Holder.Label, moment(f.refused.Holder.Since)
			e.Why = "it was archived because its key was held and its strategy does not wait"
		case f.lastErr != "":
			e.Why += ": " + f.lastErr
		}
		e.Remedy = "repair the cause, then: railtoken replay --task " + f.task.String()
	case Completed:
		e.Why, e.Expected = "it has succeeded", "it has ended"
	case InGroup:
		e.Why, e.Expected = "it is in a group that is not complete", "when asynq aggregates its group"
	case Overdue:
		e.Why = "its deadline was " + at(f.deadline) + ", so asynq does not run it any more"
		e.Expected = "never"
		e.Remedy = "enqueue it again with a later deadline, or: railtoken drop " + f.task.String()
	}
	ofDeaths(e, f)
}

// ofDeaths says how many runs have ended with their workers, and what to do about that.
func ofDeaths(e *Explanation, f facts) {
	if f.deaths == 0 {
		return
	}
	e.Why += fmt.Sprintf("; %s ended because its worker died or stood still", runs(f.deaths))
	if f.deaths > 1 {
		e.Remedy = both(e.Remedy, fmt.Sprintf("see whether the task kills its workers, by memory for example, and if so: railtoken cancel %s --why REASON",
			f.task))
	}
}

// runs counts the last runs.
func runs(n int) string {
	if n == 1 {
		return "a run of it has"
	}
	return fmt.Sprintf("%d of its last runs have", n)
}

// limit writes out that a limit on waiting was reached.
func limit(e *Explanation, f facts) {
	if f.refused == nil {
		e.Why = "the limit on waiting tasks was reached, so it is not among the waiters and is tried again by its timer"
		e.Expected = "at " + at(f.due)
		return
	}
	c := f.refused
	e.Key, e.Conflicts, e.Holder, e.HeldSince = c.Key, c.Conflicts, c.Holder.Label, moment(c.Holder.Since)
	e.Why = fmt.Sprintf("it was archived because it reached its limit on %s: %d conflicts in %v", c.Limit, c.Conflicts,
		c.Waited.Round(time.Millisecond))
	e.Expected = "never"
	e.Remedy = "once the key is free: railtoken replay --task " + f.task.String()
}

// holderOf describes the holder of the key.
func holderOf(f facts) string {
	var b strings.Builder
	switch {
	case f.by != (delayqueue.Task{}):
		b.WriteString("task " + f.by.String())
		if f.holder.Label != "" {
			b.WriteString(" (" + f.holder.Label + ")")
		}
	case f.holder.Label != "":
		b.WriteString(f.holder.Label)
	default:
		b.WriteString("another program")
	}
	if !f.holder.Since.IsZero() {
		fmt.Fprintf(&b, " for %v", max(f.now.Sub(f.holder.Since), 0).Round(time.Millisecond))
	}
	if f.silent > 0 {
		b.WriteString(" in " + strings.TrimSpace("worker "+f.process) + unheard(f.silent))
	}
	return b.String()
}

// superseding says that the task supersedes others; empty if it does not.
func superseding(f facts) string {
	if f.supersedes == "" {
		return ""
	}
	return fmt.Sprintf("; it supersedes the tasks of group %q, and asks holders of that group to stop", f.supersedes)
}

// inWorker names the process that runs the task, as far as it is known.
func inWorker(f facts) string {
	if f.runner == "" {
		return ""
	}
	return " in worker " + f.runner
}

// ofKey names the key that the task holds, and how many tasks wait for it.
func ofKey(f facts) string {
	if !f.holds || f.key == "" {
		return ""
	}
	text := ", and it holds key " + quoted(f.key)
	if f.holder != nil && !f.holder.Since.IsZero() {
		text += fmt.Sprintf(" since %s", at(f.holder.Since))
	}
	if f.waiters == 0 {
		return text
	}
	return text + ", for which " + waits(f.waiters)
}

// longHold is how long a key is held before a remedy is named: a lease of the default TTL was renewed by then.
const longHold = locking.DefaultTTL

// unheard says of a worker that it is silent.
func unheard(silent time.Duration) string {
	return fmt.Sprintf(", which has not been heard of for %v: it is stopped, is cut off from Redis, or has died", silent.Round(time.Second))
}

// both joins two remedies, of which either may be empty.
func both(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + second
}

// ofHold says what to do about the holder of the key; empty if nothing needs to be done.
func ofHold(f facts) string {
	if f.silent > 0 {
		return ofDeadHolder(f)
	}
	return ofLongHold(f)
}

// ofDeadHolder says what to do about a key whose holder may be dead.
func ofDeadHolder(f facts) string {
	switch {
	case f.elsewhere:
		return "if its worker is dead, the lock ends by itself; otherwise end that process"
	case f.holder.Remaining <= 0:
		return "to take the key away: railtoken depose " + quoted(f.key) + " --why REASON"
	default:
		return fmt.Sprintf("if its worker is dead, the lock ends in %v by itself; sooner: railtoken depose %s --why REASON",
			f.holder.Remaining.Round(100*time.Millisecond), quoted(f.key))
	}
}

// noHandler begins asynq's error for a task for whose type its server has no handler.
const noHandler = "handler not found for task"

// ofFailed says how a failed task runs before its time; empty if it has not failed.
func ofFailed(f facts) string {
	if f.lastErr == "" || f.postponed {
		return ""
	}
	run := fmt.Sprintf("to run it before its time: asynq task run --queue=%s --id=%s", quoted(f.task.Queue), quoted(f.task.ID))
	if strings.HasPrefix(f.lastErr, noHandler) {
		return fmt.Sprintf("start a worker that has a handler for tasks of type %q, then, %s", f.taskType, run)
	}
	return run
}

// ofLongHold says what to do about a key that is held for long; empty if it is not.
func ofLongHold(f facts) string {
	if f.holder == nil || f.holder.Since.IsZero() || f.now.Sub(f.holder.Since) <= longHold {
		return ""
	}
	if f.elsewhere {
		return fmt.Sprintf("its worker %s still reports the task, so its process lives: if it hangs, stop that process, because "+
			"a lock in another store (%s) cannot be taken away", f.process, f.unseen)
	}
	return fmt.Sprintf("its lock has been renewed since %s, so its process lives: if it hangs, railtoken look %s shows it, "+
		"and railtoken depose %s --why REASON takes the key away", at(f.holder.Since), quoted(f.key), quoted(f.key))
}

// ofHead says what to do about the head of a sequence that is not parked; empty if no other task waits for it.
func ofHead(f facts) string {
	switch {
	case f.sequence.position != 1 || f.waiters == 0:
		return ""
	case f.state == "scheduled":
		return fmt.Sprintf("%s behind it in order: to let the next one run, railtoken drop %s", waits(f.waiters), f.task)
	default:
		return fmt.Sprintf("%s behind it in order: repair what makes it fail, or let the next one run: railtoken drop %s",
			waits(f.waiters), f.task)
	}
}

// waits counts tasks that wait.
func waits(n int) string {
	if n == 1 {
		return "one task waits"
	}
	return fmt.Sprintf("%d tasks wait", n)
}

// tasks counts tasks.
func tasks(n int) string {
	if n == 1 {
		return "one task"
	}
	return fmt.Sprintf("%d tasks", n)
}

// orOther says that the task waits for further keys; empty if it does not.
func orOther(f facts) string {
	switch len(f.others) {
	case 0:
		return ""
	case 1:
		return ", or its other key is released"
	default:
		return fmt.Sprintf(", or one of its %d other keys is released", len(f.others))
	}
}

// latest says when the task's own timer ends.
func latest(f facts) string {
	if f.due.IsZero() {
		return ""
	}
	return ", and it tries by itself at " + at(f.due)
}

// at returns a time as logs show it.
func at(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}

// moment returns a time for JSON; nil when it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// quoted returns a key as an argument of a shell.
func quoted(key string) string {
	if key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_./@%+,-") == "" {
		return key
	}
	return "'" + strings.ReplaceAll(key, "'", `'\''`) + "'"
}
