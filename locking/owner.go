package locking

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/holderlabel"
)

const (
	ownerBytes   = 20              // 160 random bits, as in Redis's documentation of the pattern
	ownerSize    = 27              // their length in base64
	markSize     = 16              // of these, what marks an owner that has given up: see abandon.lua
	maxUnixMilli = 253402300799999 // the end of the year 9999, the last one of RFC 3339
)

// owner is what the value of a lock says about its holder.
type owner struct {
	label string
	since time.Time
	block int64 // how many tokens were reserved
}

// newOwner returns the value of a lock: random bits that identify the acquisition, its time, the number of its tokens,
// and its label, so that the value tells an operator who holds the key.
func newOwner(label string, block int, now time.Time) string {
	var random [ownerBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	var array [ownerSize + 20]byte
	b := array[:ownerSize]
	base64.RawURLEncoding.Encode(b, random[:])
	b = append(b, '.')
	b = strconv.AppendInt(b, now.UnixMilli(), 36)
	if block > 1 {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(block), 36)
	}
	b = append(b, '.')
	return string(b) + label
}

// parseOwner parses the value of a lock. The value of another program has no label and a zero time.
func parseOwner(value string) owner {
	parts := strings.SplitN(value, ".", 3)
	if len(parts) != 3 || len(parts[0]) != ownerSize {
		return owner{block: 1}
	}
	if _, err := base64.RawURLEncoding.DecodeString(parts[0]); err != nil || strings.ContainsAny(parts[0], "\r\n") {
		return owner{block: 1}
	}
	moment, size, several := strings.Cut(parts[1], "-")
	ms, err := strconv.ParseInt(moment, 36, 64)
	if err != nil || ms < 0 || ms > maxUnixMilli {
		return owner{block: 1}
	}
	block := int64(1)
	if several {
		if block, err = strconv.ParseInt(size, 36, 64); err != nil || block < 1 || block > maxBlock {
			return owner{block: 1}
		}
	}
	// Another program's value may look like ours, so its label is cleaned.
	return owner{label: holderlabel.Clean(parts[2]), since: time.UnixMilli(ms), block: block}
}

// DefaultLabel returns the name of this process, "host/pid".
func DefaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}
