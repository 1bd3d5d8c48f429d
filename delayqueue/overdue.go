package delayqueue

import (
	"encoding/binary"
	"time"
)

// overdue is our word for the state of a task that is delayed and whose deadline has passed. asynq does not run its handler again: it retries
// the task, for days, until it archives it. Nobody should wait for that.
const overdue = "overdue"

// mayBeOverdue reports whether a task in this state runs again later, if at all.
func mayBeOverdue(state string) bool { return state == "retry" || state == "scheduled" }

// Numbers in the encoding of asynq's messages (v0.26, TaskMessage in asynq.proto).
const (
	deadlineField = 9
	varintWire    = 0
	fixed64Wire   = 1
	bytesWire     = 2
	fixed32Wire   = 5
)

// deadlineOf returns the deadline in asynq's message of a task; zero when there is none, or the message cannot be read.
func deadlineOf(message string) time.Time {
	rest := []byte(message)
	for len(rest) > 0 {
		tag, n := binary.Uvarint(rest)
		if n <= 0 {
			break
		}
		rest = rest[n:]
		size := uint64(0)
		switch tag & 7 {
		case varintWire, bytesWire:
			value, n := binary.Uvarint(rest)
			if n <= 0 {
				return time.Time{}
			}
			rest = rest[n:]
			if tag == deadlineField<<3|varintWire && int64(value) > 0 {
				return time.Unix(int64(value), 0)
			}
			if tag&7 == bytesWire {
				size = value
			}
		case fixed64Wire:
			size = 8
		case fixed32Wire:
			size = 4
		default:
			return time.Time{}
		}
		if size > uint64(len(rest)) {
			break
		}
		rest = rest[size:]
	}
	return time.Time{}
}
