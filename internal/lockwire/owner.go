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
	// pattern. Those in the place of [Process] are the same in all values of a process, which leaves 112.
	IDSize = 27

	// ProcessSize is the length of [Process], which follows the mark in the random part.
	ProcessSize = 8

	idBytes      = 20
	markSize     = 16 // of the random part, what marks an owner that has given up: see abandon in lua/locks.lua
	runSize      = markSize + ProcessSize
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

// Process is part of all lock values and names of runs that this process makes. It tells them from those of any other
// process.
var Process = rand.Text()[:ProcessSize]

// newID returns random bits in base64, and Process behind the mark unless the process is not to be told.
func newID(anonymous bool) (id [IDSize]byte) {
	var random [idBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	base64.RawURLEncoding.Encode(id[:], random[:])
	if !anonymous {
		copy(id[markSize:], Process)
	}
	return id
}

// NewRun returns the name of a call that begins runs of tasks: random bits, then Process. The name of each run is that of
// its call, a point, and a number.
func NewRun() string {
	id := newID(false)
	return string(id[:runSize])
}

// ProcessOfRun returns the Process that has begun a run, or "" if its name does not tell: a server without railtoken or
// of an earlier version has begun it, or one whose runs are left to asynq's recoverer.
func ProcessOfRun(run string) string {
	if len(run) <= runSize || run[runSize] != '.' {
		return ""
	}
	return run[markSize:runSize]
}

// ProcessOfOwner returns the Process that has made the value of a lock, or "" if another program has. In values of earlier
// versions, and of a process that is not to be told, there are random bits in its place.
func ProcessOfOwner(value string) string {
	if !ParseOwner(value).Ours {
		return ""
	}
	return value[markSize:runSize]
}

// IsOurs reports whether the value of a lock tells this process.
func IsOurs(value string) bool { return len(value) > IDSize && value[markSize:runSize] == Process }

// NewOwner returns the value of a lock: random bits that identify the acquisition, and among them Process unless it is anonymous;
// its time, the number of its tokens, and its label, so that the value tells an operator who holds the key.
func NewOwner(label string, block int, now time.Time, anonymous bool) string {
	id := newID(anonymous)
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
