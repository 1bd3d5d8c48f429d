package lockwire

import (
	"crypto/sha1" //nolint:gosec // a short name for a value
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

const (
	// RecordLifetime is how long a deposed owner can learn of it: longer than a TTL of tasks.
	RecordLifetime = 10 * time.Minute
	// nameSize is the length of an owner's name.
	nameSize = 16
)

// Name returns the name of the value of a lock, by which operators know its owner.
func Name(value string) string {
	sum := sha1.Sum([]byte(value)) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])[:nameSize]
}

// RecordKey returns the Redis key of the record of a deposed owner, given that of the fence counter.
func RecordKey(fence, name string) string {
	return strings.TrimSuffix(fence, ":fence") + ":deposed:" + name
}

// Record is what stays on a server of a deposed owner, behind the name of the owner by which it was deposed.
type Record struct {
	By, Why string
	Mark    string // that of the deposed owner, for a Depose that is repeated
}

// ParseRecord parses the value of a record. ok is false if it is none.
func ParseRecord(text string) (r Record, ok bool) {
	if len(text) < nameSize || json.Unmarshal([]byte(text[nameSize:]), &r) != nil {
		return Record{}, false
	}
	return r, true
}
