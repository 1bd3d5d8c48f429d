package delayqueue

import "time"

// overdue is our word for the state of a task that is delayed and whose deadline has passed. asynq does not run its handler again: it retries
// the task, for days, until it archives it. Nobody should wait for that.
const overdue = "overdue"

// mayBeOverdue reports whether a task in this state runs again later, if at all.
func mayBeOverdue(state string) bool { return state == "retry" || state == "scheduled" }

// deadlineOf returns the deadline in asynq's message of a task; zero when there is none, or the message cannot be read.
func deadlineOf(message string) time.Time {
	if s := varintOf(message, deadlineField); s > 0 {
		return time.Unix(s, 0)
	}
	return time.Time{}
}
