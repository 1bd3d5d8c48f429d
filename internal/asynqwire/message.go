package asynqwire

import (
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is what asynq's message of a task says.
type Message struct {
	ID, Queue, Type, Group, LastErr string
	Payload                         []byte
	Headers                         map[string]string
	MaxRetry, Retried               int
	Timeout, Retention              time.Duration
	Deadline                        time.Time // zero if there is none
	LastFailedAt, CompletedAt       time.Time // zero if it has not
}

// ReadMessage reads the message of a task. What cannot be read is zero.
func ReadMessage(message string) Message {
	f := parse([]byte(message))
	m := Message{
		ID: f.text(3), Queue: f.text(4), Type: f.text(1), Payload: f.last(2),
		MaxRetry: int(f.number(5)), Retried: int(f.number(6)), LastErr: f.text(7), LastFailedAt: f.moment(11),
		Timeout: time.Duration(f.number(8)) * time.Second, Deadline: f.moment(9), Group: f.text(14),
		Retention: time.Duration(f.number(12)) * time.Second, CompletedAt: f.moment(13),
	}
	for _, header := range f[15] {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		entry := parse(header)
		m.Headers[entry.text(1)] = entry.text(2)
	}
	return m
}

// TransferredFrom reports whether a task that railtoken has moved to another queue was enqueued in this one. Its message then
// names both queues, until it runs again.
func TransferredFrom(message, queue string) bool {
	queues := parse([]byte(message))[4]
	return len(queues) > 1 && string(queues[0]) == queue
}

// Readdressed returns the message of a task as it is in another queue, where its uniqueness lock has another name. ok is false if
// it cannot be read.
func Readdressed(message, queue string) (there string, ok bool) {
	from := Prefix(ReadMessage(message).Queue)
	var out []byte
	for rest := []byte(message); len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return "", false
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if size < 0 {
			return "", false
		}
		field, value := rest[:n+size], rest[n:n+size]
		rest = rest[n+size:]
		if kind == protowire.BytesType && (number == 4 || number == 10) {
			text, _ := protowire.ConsumeBytes(value)
			moved := queue
			if number == 10 {
				moved = ReaddressedLock(string(text), from, queue)
			}
			field = protowire.AppendString(protowire.AppendTag(nil, number, kind), moved)
		}
		out = append(out, field...)
	}
	return string(out), true
}

// ReaddressedLock returns the name of a uniqueness lock as it is in another queue; from is the prefix of its own.
func ReaddressedLock(lock, from, queue string) string {
	if rest, ok := strings.CutPrefix(lock, from); ok {
		return Prefix(queue) + rest
	}
	return lock
}

// fields are those of a message that asynq has stored (asynq.proto). Of a field that occurs several times the last counts.
type fields map[protowire.Number][][]byte

// parse returns the fields of a message: values of varints as they are encoded, and bytes without their length. What
// cannot be read ends it.
func parse(message []byte) fields {
	all := fields{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			break
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		all[number], message = append(all[number], value), message[n:]
	}
	return all
}

func (f fields) last(number protowire.Number) []byte {
	if values := f[number]; len(values) > 0 {
		return values[len(values)-1]
	}
	return nil
}

func (f fields) text(number protowire.Number) string { return string(f.last(number)) }

func (f fields) number(number protowire.Number) int64 {
	n, _ := protowire.ConsumeVarint(f.last(number))
	return int64(n) //nolint:gosec // that is how protobuf encodes negative numbers
}

// moment returns a time in whole seconds; zero for none.
func (f fields) moment(number protowire.Number) time.Time {
	if s := f.number(number); s > 0 {
		return time.Unix(s, 0)
	}
	return time.Time{}
}

// timestamp returns a time that is a message of its own; zero for none.
func (f fields) timestamp(number protowire.Number) time.Time {
	t := parse(f.last(number))
	if s := t.number(1); s > 0 {
		return time.Unix(s, t.number(2))
	}
	return time.Time{}
}
