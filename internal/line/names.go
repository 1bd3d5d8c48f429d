package line

import (
	"strings"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// ParkedIndex is the sorted set of all parked tasks: the score of an entry is when it was last parked (us).
const ParkedIndex = "railtoken:parked"

// waitersPrefix begins the names of all sets of waiters.
const waitersPrefix = "railtoken:waiters:{"

// WaitersKey returns the name of the sorted set of a key's waiters.
func WaitersKey(key string) string { return waitersPrefix + rediswire.Encode(key) + "}" }

// KeyOf returns the key of a set of waiters.
func KeyOf(waiters string) (string, bool) {
	if len(waiters) <= len(waitersPrefix) {
		return "", false
	}
	return rediswire.Decode(waiters[len(waitersPrefix) : len(waiters)-1])
}

// SequenceField is the field of asynq's hash of a task that names its sequence: see head.lua.
const SequenceField = "railtoken:sequence"

// sequencePrefix begins the names of all sequences.
const sequencePrefix = "railtoken:sequence:{"

// SequenceKey returns the name of the sorted set of the tasks that wait for a key or hold it, in order of arrival.
func SequenceKey(key string) string { return sequencePrefix + rediswire.Encode(key) + "}" }

// SequenceOf returns the key of the sequence that a task's record names: see head.lua.
func SequenceOf(mark string) (string, bool) {
	name, _, _ := strings.Cut(mark, " ")
	if !strings.HasPrefix(name, sequencePrefix) {
		return "", false
	}
	return rediswire.Decode(strings.TrimSuffix(name[len(sequencePrefix):], "}"))
}

// encoded returns keys as they are recorded: separated by blanks, each encoded as in the name of its lock.
func encoded(all []string) string {
	parts := make([]string, len(all))
	for i, key := range all {
		parts[i] = rediswire.Encode(key)
	}
	return strings.Join(parts, " ")
}

// decoded returns keys that were encoded; none if they are not ours.
func decoded(all string) (keys []string) {
	for one := range strings.FieldsSeq(all) {
		key, ok := rediswire.Decode(one)
		if !ok {
			return nil
		}
		keys = append(keys, key)
	}
	return keys
}
