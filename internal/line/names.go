package line

import (
	"cmp"
	"strings"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	parkedIndex     = "railtoken:parked"
	waitersPrefix   = "railtoken:waiters:{"
	sequencePrefix  = "railtoken:sequence:{"
	collectingStart = "railtoken:collect:{"
)

// Names are the names of lines. With lanes, those of a key are in the slot of its lane.
type Names struct {
	lanes.Lanes
	index string // begins the names of the indexes; railtoken:parked when empty
}

// NamesIn returns the names of lines in lanes.
func NamesIn(l lanes.Lanes) Names { return Names{Lanes: l} }

// Waiters returns the name of the sorted set of a key's waiters.
func (n Names) Waiters(key string) string { return waitersPrefix + n.Encode(key) + "}" }

// Sequence returns the name of the sorted set of the tasks that wait for a key or hold it, in order of arrival.
func (n Names) Sequence(key string) string { return sequencePrefix + n.Encode(key) + "}" }

// collecting returns the name of the mark of the task that collects a key among several.
func (n Names) collecting(key string) string { return collectingStart + n.Encode(key) + "}" }

// Index returns the name of the sorted set of all parked tasks of a queue: those of its lane, or of all queues without one.
// The score of an entry is when it was last parked (us).
func (n Names) Index(queue string) string {
	if lane, ok := n.In(queue); ok {
		return n.indexIn(lane)
	}
	return n.start()
}

// Indexes returns the names of all sets of parked tasks.
func (n Names) Indexes() []string {
	all := []string{n.start()}
	for lane := range n.Count() {
		all = append(all, n.indexIn(lane))
	}
	return all
}

func (n Names) start() string { return cmp.Or(n.index, parkedIndex) }

func (n Names) indexIn(lane int) string { return n.start() + ":{" + n.Tag(lane) + "}" }

// indexOf returns the name of the index in the slot of a key.
func (n Names) indexOf(key string) string {
	if n.Count() == 0 {
		return n.start()
	}
	return n.indexIn(n.Of(key))
}

// owed returns the name of the sorted set of the keys for which a wake is owed, in the slot of a key: see owe.lua.
func (n Names) owed(key string) string { return OwedIn(n.indexOf(key)) }

// OwedIn returns the name of the sorted set of the keys for which a wake is owed, beside an index.
func OwedIn(index string) string { return index + ":owed" }

// KeyOf returns the key of a set of waiters.
func KeyOf(waiters string) (string, bool) {
	if len(waiters) <= len(waitersPrefix) {
		return "", false
	}
	return rediswire.Decode(waiters[len(waitersPrefix) : len(waiters)-1])
}

// SequenceField is the field of asynq's hash of a task that names its sequence: see head.lua.
const SequenceField = "railtoken:sequence"

// SequenceOf returns the key of the sequence that a task's record names: see head.lua.
func SequenceOf(mark string) (string, bool) {
	name, _, _ := strings.Cut(mark, " ")
	if !strings.HasPrefix(name, sequencePrefix) {
		return "", false
	}
	return rediswire.Decode(strings.TrimSuffix(name[len(sequencePrefix):], "}"))
}

// encoded returns keys as they are recorded: separated by blanks, each encoded as in the name of its lock.
func (n Names) encoded(all []string) string {
	parts := make([]string, len(all))
	for i, key := range all {
		parts[i] = n.Encode(key)
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
