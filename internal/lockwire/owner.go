package lockwire

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxBlock is how many fencing tokens one owner can reserve at most.
	MaxBlock = 256
	// IDSize is the length of the random part of a value: 160 bits in base64, as many as in Redis's documentation of the
	// pattern. Those in the place of a [NewName] are the same in all values of a worker, which leaves 112.
	IDSize = 27

	// NameSize is the length of the name of a worker, which follows the mark in the random part.
	NameSize = 8

	idBytes      = 20
	markSize     = 16 // of the random part, what marks an owner that has given up: see abandon in lua/locks.lua
	runSize      = markSize + NameSize
	maxUnixMilli = 253402300799999 // the end of the year 9999, the last one of RFC 3339
)

// Owner is what the value of a lock says about its holder.
type Owner struct {
	// Ours is false if another program has set the lock. Then the rest is zero, and Block is 1.
	Ours  bool
	Label string
	Since time.Time
	Block int64 // how many tokens are reserved
	// Mark is what identifies it among the owners whose late calls are refused.
	Mark string
}

// NewName returns a name for a worker. It is part of the names of its runs and of the values of its locks, and tells them from those of
// any other.
func NewName() string { return rand.Text()[:NameSize] }

// newID returns random bits in base64, and the name of a worker behind the mark, if it is not empty.
func newID(name string) (id [IDSize]byte) {
	var random [idBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	base64.RawURLEncoding.Encode(id[:], random[:])
	copy(id[markSize:runSize], name)
	return id
}

// NewRun returns the name of a call that begins runs of tasks: random bits, then the name of the worker. The name of each run is that
// of its call, a point, and a number.
func NewRun(name string) string {
	id := newID(name)
	return string(id[:runSize])
}

// WorkerOfRun returns the name of the worker that has begun a run, or "" if that of the run does not tell: a server without railtoken
// or of an earlier version has begun it, or one whose runs are left to asynq's recoverer.
func WorkerOfRun(run string) string {
	if len(run) <= runSize || run[runSize] != '.' {
		return ""
	}
	return run[markSize:runSize]
}

// WorkerOfOwner returns the name of the worker that has made the value of a lock, or "" if another program has. In values of earlier
// versions, and in those that do not tell the worker, there are random bits in its place.
func WorkerOfOwner(value string) string {
	if !ParseOwner(value).Ours {
		return ""
	}
	return value[markSize:runSize]
}

// NewOwner returns the value of a lock: random bits that identify the acquisition, and among them the name of a worker, if it is not
// empty; its time, the number of its tokens, and its label, so that the value tells an operator who holds the key.
func NewOwner(label string, block int, now time.Time, name string) string {
	id := newID(name)
	var array [IDSize + 20]byte
	b := append(array[:0], id[:]...)
	b = append(b, '.')
	b = strconv.AppendInt(b, now.UnixMilli(), 36)
	if block > 1 {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(block), 36)
	}
	b = append(b, '.')
	return string(b) + label
}

// ParseOwner parses the value of a lock.
func ParseOwner(value string) Owner {
	parts := strings.SplitN(value, ".", 3)
	if len(parts) != 3 || len(parts[0]) != IDSize {
		return Owner{Block: 1}
	}
	if _, err := base64.RawURLEncoding.DecodeString(parts[0]); err != nil || strings.ContainsAny(parts[0], "\r\n") {
		return Owner{Block: 1}
	}
	moment, size, several := strings.Cut(parts[1], "-")
	ms, err := strconv.ParseInt(moment, 36, 64)
	if err != nil || ms < 0 || ms > maxUnixMilli {
		return Owner{Block: 1}
	}
	block := int64(1)
	if several {
		if block, err = strconv.ParseInt(size, 36, 64); err != nil || block < 1 || block > MaxBlock {
			return Owner{Block: 1}
		}
	}
	// Another program's value may look like ours, so its label is cleaned.
	return Owner{
		Ours: true, Label: CleanLabel(parts[2]), Since: time.UnixMilli(ms), Block: block, Mark: value[:markSize],
	}
}
