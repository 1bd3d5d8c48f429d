package line

import (
	"time"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields in asynq's message of a task (v0.26, TaskMessage in asynq.proto).
const (
	typeField         = 1
	payloadField      = 2
	idField           = 3
	queueField        = 4
	retryField        = 5
	retriedField      = 6
	errorField        = 7
	timeoutField      = 8
	deadlineField     = 9
	uniqueField       = 10
	lastFailedAtField = 11
	headersField      = 15
)

// varintOf returns a field of asynq's message of a task; 0 when it is missing, or the message cannot be read.
func varintOf(message string, number protowire.Number) int64 {
	value, _ := protowire.ConsumeVarint(fieldOf(message, number, protowire.VarintType))
	return int64(value)
}

// textOf returns a text of the message; "" when it is missing.
func textOf(message string, number protowire.Number) string {
	value, _ := protowire.ConsumeBytes(fieldOf(message, number, protowire.BytesType))
	return string(value)
}

// fieldOf returns a field of the message, encoded; nil when it is missing, or the message cannot be read.
func fieldOf(message string, number protowire.Number, kind protowire.Type) (value []byte) {
	if !eachField(message, func(field protowire.Number, wire protowire.Type, found []byte) {
		if field == number && wire == kind {
			value = found
		}
	}) {
		return nil
	}
	return value
}

// eachField calls a function with each field of a message. It reports false when the message cannot be read.
func eachField(message string, each func(field protowire.Number, wire protowire.Type, value []byte)) bool {
	for rest := []byte(message); len(rest) > 0; {
		field, wire, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return false
		}
		rest = rest[n:]
		if n = protowire.ConsumeFieldValue(field, wire, rest); n < 0 {
			return false
		}
		each(field, wire, rest[:n])
		rest = rest[n:]
	}
	return true
}

// Outline is what a list shows of a task's message: no payload.
type Outline struct{ Type, LastErr string }

// OutlineOf returns the outline of asynq's message of a task; empty if it cannot be read.
func OutlineOf(message string) Outline {
	return Outline{Type: textOf(message, typeField), LastErr: textOf(message, errorField)}
}

// deadlineOf returns the deadline in asynq's message of a task (s); 0 when there is none, or the message cannot be
// read.
func deadlineOf(message string) int64 { return max(varintOf(message, deadlineField), 0) }

// taskIn returns the task of a message with its type, payload and headers, as a handler gets them; nil if the message
// cannot be read.
func taskIn(message string) *asynq.Task {
	var kind string
	var payload []byte
	var headers map[string]string
	if !eachField(message, func(field protowire.Number, wire protowire.Type, found []byte) {
		if wire != protowire.BytesType {
			return
		}
		value, _ := protowire.ConsumeBytes(found)
		switch field {
		case typeField:
			kind = string(value)
		case payloadField:
			payload = value
		case headersField:
			if headers == nil {
				headers = map[string]string{}
			}
			entry := string(value)
			headers[textOf(entry, 1)] = textOf(entry, 2)
		}
	}) {
		return nil
	}
	return asynq.NewTaskWithHeaders(kind, payload, headers)
}

// failed returns the message of a task that has failed once more. Readers of protobuf use the last value of a field
// that occurs twice.
func failed(message string, retried, at int64, text string) string {
	m := protowire.AppendTag([]byte(message), retriedField, protowire.VarintType)
	m = protowire.AppendVarint(m, uint64(retried))
	m = protowire.AppendTag(m, errorField, protowire.BytesType)
	m = protowire.AppendString(m, text)
	m = protowire.AppendTag(m, lastFailedAtField, protowire.VarintType)
	return string(protowire.AppendVarint(m, uint64(at)))
}

// queueOf returns what is added to the message of a task that moves to another queue.
func queueOf(queue string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, queueField, protowire.BytesType), queue)
}

// WaitText is the last error of a parked task: see state.lua.
const WaitText = "railtoken: waits for its keys"

// Described returns the type of a task, its timeout and its deadline, from asynq's message. What the task does not have,
// or what cannot be read, is zero.
func Described(message string) (taskType string, timeout time.Duration, deadline time.Time) {
	timeout = time.Duration(varintOf(message, timeoutField)) * time.Second
	if s := deadlineOf(message); s > 0 {
		deadline = time.Unix(s, 0)
	}
	return textOf(message, typeField), timeout, deadline
}

// passed reports whether a deadline (s), 0 for none, has passed. Then asynq does not run the task's handler again, but
// retries the task, for days, until it archives it. No other task should wait for that.
func passed(deadline int64, now time.Time) bool {
	return deadline > 0 && !now.Before(time.Unix(deadline, 0))
}
