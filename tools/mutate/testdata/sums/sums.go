// Package sums is what the tests of mutate change.
package sums

import (
	"context"
	"errors"
	"log/slog"
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

// Steps returns what each of so many steps adds, and logs how many there are.
func Steps(n int, log *slog.Logger) []int {
	steps := make([]int, 0, 2*n)
	for i := range n {
		steps = append(steps, i)
	}
	log.Info("steps", "number", n+3, "odd", n == 5)
	return steps
}

// Within adds within a time, unless that is over.
func (b *Box) Within(limit time.Duration, more int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ends, end := context.WithCancel(ctx)
	defer end()
	if ends.Err() != nil {
		return 0, ends.Err()
	}
	return b.Add(more)
}
