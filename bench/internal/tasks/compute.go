package tasks

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// stepTime is what a step of a computation takes at most, so that the end of a run breaks it off soon.
const stepTime = 100 * time.Microsecond

// steps returns how many hashes take stepTime while nothing else runs.
var steps = sync.OnceValue(func() int {
	const hashes, tries = 2000, 5
	best := time.Hour
	for range tries {
		began := time.Now()
		hash(hashes)
		best = min(best, time.Since(began))
	}
	return max(int(hashes*stepTime/best), 1)
})

func hash(n int) {
	var block [256]byte
	for range n {
		sum := sha256.Sum256(block[:])
		copy(block[:], sum[:])
	}
}

// compute uses as much of a processor as takes d while nothing else runs. The end of ctx breaks it off.
func compute(ctx context.Context, d time.Duration) error {
	for left := d; left > 0; left -= stepTime {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hash(steps())
	}
	return nil
}
