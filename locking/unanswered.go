package locking

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/backlog"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Unanswered releases, and calls that give an attempt back, are repeated in the background, so that no key stays locked
// without a holder once the server answers.
const (
	firstRetry = 20 * time.Millisecond
	maxRetry   = 250 * time.Millisecond
	maxRetries = 4096 // grants of a Redlock at the same time; beyond that, locks end with their TTL

	// lateRetry is how long a call with an unknown outcome is given back. A server that was stopped executes it when it
	// continues, however long that takes, so the TTL is no bound.
	lateRetry = 10 * time.Minute
)

// newRetryPauses returns the pauses between repeated calls.
func newRetryPauses() *backoff.ExponentialBackOff { return growing(firstRetry, maxRetry, 1.5, 0.2) }

// cleanupTimeout is how long a failed attempt waits for being given back.
const cleanupTimeout = time.Second

// errTooManyRetries is the error of an unanswered call that is not repeated.
var errTooManyRetries = errors.New("too many releases wait for an answer")

// errUnanswered is the error of a call that ended without another error.
var errUnanswered = errors.New("there is no answer yet")

// newBacklog returns the backlog of a [Single]: its calls are repeated in the background, also those of attempts and
// releases that are under way when it is closed, for cleanupTimeout at most.
func newBacklog() *backlog.Backlog { return backlog.New(backlog.Options{AfterClose: cleanupTimeout}) }

// retry is a call that is repeated in the background.
type retry struct {
	done chan struct{} // closed once it has ended

	mu    sync.Mutex
	reply releaseReply
	err   error // of the last call; nil once it is answered
	left  bool  // the caller does not learn the answer
}

// repeat repeats a release until it is answered or useless, until the backlog is closed, or for d at most. If the call
// was made before, last is its error, and a pause comes first. late is called if the answer says that another caller
// waits for the keys, and the caller does not use it: because it has called leave, or never does.
func repeat(
	p *backlog.Backlog, d time.Duration, last error, used bool,
	call func(ctx context.Context) (releaseReply, error), late func(),
) *retry {
	r := &retry{done: make(chan struct{}), err: cmp.Or(last, errUnanswered), left: !used}
	began := time.Now()
	ok := p.Add(&backlog.Call{
		For: d,
		Try: func(ctx context.Context) error {
			reply, err := call(ctx)
			if err != nil && ctx.Err() != nil {
				return err // the error before says more
			}
			r.mu.Lock()
			r.reply, r.err = reply, err
			r.mu.Unlock()
			if err != nil && (isOver(err) || permanent(err) && time.Since(began) > releaseTimeout) {
				return nil
			}
			return err
		},
		Over: func() {
			close(r.done)
			if r.isLate() {
				late()
			}
		},
	}, last != nil)
	if !ok {
		r.err = errors.Join(errTooManyRetries, last)
		close(r.done)
	}
	return r
}

// isOver reports whether a call that failed with err cannot be repeated.
func isOver(err error) bool {
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) || rediswire.IsForeign(err)
}

// outcome returns the reply, or why there is none yet.
func (r *retry) outcome() (releaseReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reply, r.err
}

// isLate reports whether the reply says that another caller waits for the keys, and the caller does not learn it.
func (r *retry) isLate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left && r.err == nil && r.reply.notify
}

// leave returns the reply. If there is none yet, it returns why, and the caller has left.
func (r *retry) leave() (releaseReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = r.err != nil
	return r.reply, r.err
}

// settled waits until all calls are answered, and reports whether they are. It waits for cleanupTimeout at most, and
// for defaultNodeTimeout at most after the end of ctx.
func settled(ctx context.Context, calls []*retry) bool {
	bounded, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	over := make(chan struct{})
	stop := context.AfterFunc(bounded, func() { time.AfterFunc(defaultNodeTimeout, func() { close(over) }) })
	defer stop()
	for _, r := range calls {
		select {
		case <-r.done:
		case <-over:
			return false
		}
		if _, err := r.outcome(); err != nil {
			return false
		}
	}
	return true
}
