package lanemove

import (
	"maps"
	"slices"
	"strings"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Reason is why a task stays where it is.
type Reason string

// The reasons. Each of these tasks is served where it is.
const (
	NoKeys    Reason = "no keys are recorded with it"
	HasLatest Reason = "it is of attach.Latest, whose record is beside its queue"
	IsAwaited Reason = "a process waits for its end"
	IsTaken   Reason = "a task of its lane has the same ID"
	IsOdd     Reason = "asynq's message of it cannot be read"
	Runs      Reason = "it runs"
	IsDone    Reason = "it is completed"
)

// The fields of a task's hash that are read here, besides those of asynq.
const (
	keysField    = "railtoken:keys"
	waitersField = "railtoken:waiters"
	awaitedField = "railtoken:awaited"
)

// fields are those of a task's hash.
type fields map[string]string

// keysOf returns the keys of a task, as far as they are recorded: with the task, with its wait, or with its sequence.
func keysOf(f fields) []string {
	if keys := decoded(f[keysField]); len(keys) > 0 {
		return keys
	}
	if wait := line.ParseWait(f[line.WaitField]); len(wait.Keys) > 0 {
		return wait.Keys
	}
	if key, ok := line.SequenceOf(f[line.SequenceField]); ok {
		return []string{key}
	}
	return nil
}

// decoded returns keys that were recorded, whether with lanes or without.
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

// laneOf returns the lane of a task, and why it stays where it is; "" if it goes there.
func laneOf(names line.Names, f fields) (lane int, why Reason) {
	m := asynqwire.ReadMessage(f[asynqwire.MessageField])
	keys := keysOf(f)
	switch {
	case m.Queue == "":
		return 0, IsOdd
	case m.Headers[line.LatestHeader] != "":
		return 0, HasLatest
	case f[awaitedField] != "":
		return 0, IsAwaited
	case len(keys) == 0:
		return 0, NoKeys
	}
	return names.Home(keys), ""
}

// inLane returns the fields of a task as they are in a lane: its message names the queue there, and its records name keys as they
// are with lanes. ok is false if the message cannot be read.
func inLane(names line.Names, f fields, from, to string) (there fields, ok bool) {
	there = maps.Clone(f)
	if there[asynqwire.MessageField], ok = asynqwire.Readdressed(f[asynqwire.MessageField], to); !ok {
		return nil, false
	}
	if lock := f[asynqwire.UniqueField]; lock != "" {
		there[asynqwire.UniqueField] = asynqwire.ReaddressedLock(lock, asynqwire.Prefix(from), to)
	}
	if keys := decoded(f[keysField]); len(keys) > 0 {
		there[keysField] = encoded(names, keys)
	}
	if words := strings.Split(f[line.WaitField], " "); len(words) > beforeKeys {
		there[line.WaitField] = strings.Join(words[:beforeKeys], " ") + " " + encoded(names, decoded(strings.Join(words[beforeKeys:], " ")))
	}
	if key, ok := line.KeyOf(f[waitersField]); ok {
		there[waitersField] = names.Waiters(key)
	}
	if key, ok := line.SequenceOf(f[line.SequenceField]); ok {
		_, how, _ := strings.Cut(f[line.SequenceField], " ")
		there[line.SequenceField] = names.Sequence(key) + " " + how
	}
	return there, true
}

// beforeKeys is how many words of the record of a wait stand before its keys.
const beforeKeys = 7

// encoded returns keys as they are recorded.
func encoded(names line.Names, keys []string) string {
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = names.Encode(key)
	}
	return strings.Join(parts, " ")
}

// standing returns the record of the wait of a task that is among the waiters of its keys; ok is false of any other.
func standing(state string, f fields) (w line.Wait, ok bool) {
	if state != retryState || f[waitersField] == "" {
		return w, false
	}
	w = line.ParseWait(f[line.WaitField])
	return w, len(w.Keys) > 0
}

// sorted returns the names of the fields in an order that is always the same.
func (f fields) sorted() []string { return slices.Sorted(maps.Keys(f)) }
