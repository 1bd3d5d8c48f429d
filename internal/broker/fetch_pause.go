package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// pauseFirst and pauseMost are the first and the longest pause after a fetch that failed. The pause doubles with
	// each failure in a row.
	pauseFirst = 10 * time.Millisecond
	pauseMost  = time.Second
)

// failures slows down fetches that fail. asynq v0.26 does not pause after an error, and would call a Redis that answers
// every call with an error many thousand times a second. Only fetches are slowed down: the rest of asynq paces itself,
// and an acknowledgement that waited would hold up a shutdown.
type failures struct {
	inARow atomic.Int64
}

// pause waits after a fetch that failed.
func (f *failures) pause(ctx context.Context, err error) {
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		f.inARow.Store(0)
		return
	case rediswire.Says(err, rediswire.NoScript): // go-redis sends the whole script next
		return
	}
	timer := time.NewTimer(pauseAfter(f.inARow.Add(1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// pauseAfter returns the pause after the n-th failure in a row.
func pauseAfter(n int64) time.Duration {
	if n > 7 { // or the shift would overflow
		return pauseMost
	}
	return min(pauseFirst<<(n-1), pauseMost)
}
