// Package sums is what the tests of mutate change.
package sums

import (
	"errors"
	"time"
)

const most = 10

var errFull = errors.New("full")

// Box has room for a few.
type Box struct {
	n     int
	full  bool
	since time.Duration
}

// Add adds so many, and returns an error if they are too many.
func (b *Box) Add(more int) (int, error) {
	if b.full || more <= 0 && b.n > 0 {
		return b.n, errFull
	}
	if b.n+more > most {
		b.full = true
		return b.n, errFull
	}
	b.n += more
	return max(b.n, 1), nil
}

// Wait returns how long the next one has to wait.
func (b *Box) Wait(each time.Duration) time.Duration {
	for range b.n {
		if b.since > time.Minute {
			break
		}
		b.since = b.since + each*2
	}
	return b.since
}
