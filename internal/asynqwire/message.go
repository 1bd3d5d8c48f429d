package asynqwire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

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
