package locking

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

// Unanswered releases, and calls that give an attempt back, are repeated in the background, so that no key stays locked
// without a holder once the server answers.
const (
	firstRetry = 20 * time.Millisecond
	maxRetry   = 250 * time.Millisecond
	maxRetries = 4096 // at the same time; beyond that locks end with their TTL

	// lateRetry is for how long a call with an unknown outcome is given back. A server that was stopped executes it
	// when it goes on, however long that takes, so the TTL is no bound.
	lateRetry = 10 * time.Minute
)

// newRetryPauses returns the pauses between them.
func newRetryPauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(maxRetry),
		backoff.WithRandomizationFactor(0.2), backoff.WithMaxElapsedTime(0))
}

// errTooManyRetries is the error of an unanswered call that is not repeated.
var errTooManyRetries = errors.New("too many releases wait for an answer")

// errUnanswered is the error of a call that was ended before it had any other.
var errUnanswered = errors.New("there is no answer yet")

// pending counts what a Locker still has to tell its servers. The zero value is ready for use.
type pending struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil when nothing waits for that
	ends map[*retry]context.CancelFunc
	over atomic.Bool // end was called
}

// add counts one more, unless n is at limit.
func (p *pending) add(limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= limit {
		return false
	}
	p.n++
	return true
}

// done counts one less.
func (p *pending) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	if p.n == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// wait returns when there are none, or after d.
func (p *pending) wait(d time.Duration) {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return
	}
	if p.none == nil {
		p.none = make(chan struct{})
	}
	none := p.none
	p.mu.Unlock()
	sleep(context.Background(), d, none)
}

// end ends the retries. Later ones, of attempts and releases under way, end after cleanupTimeout.
func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over.Store(true)
	for _, end := range p.ends {
		end()
	}
}

// begin returns the context of a retry, which lasts for d at most.
func (p *pending) begin(r *retry, d time.Duration) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.Load() {
		d = min(d, cleanupTimeout)
	}
	ctx, end := context.WithTimeout(context.Background(), d)
	if p.ends == nil {
		p.ends = map[*retry]context.CancelFunc{}
	}
	p.ends[r] = end
	return ctx
}

// ended forgets a retry.
func (p *pending) ended(r *retry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[r]()
	delete(p.ends, r)
}

// retry is a call that is repeated in the background.
type retry struct {
	done chan struct{} // closed once it has ended

	mu    sync.Mutex
	reply any
	err   error // of the last call; nil once it is answered
}

// retry repeats a call until it is answered or of no use, until end is called, or for d at most. When the call was made
// before, last is its error, and a pause comes first.
func (p *pending) retry(d time.Duration, last error, call func(ctx context.Context) (any, error)) *retry {
	r := &retry{done: make(chan struct{}), err: cmp.Or(last, errUnanswered)}
	if !p.add(maxRetries) {
		r.err = errors.Join(errTooManyRetries, last)
		close(r.done)
		return r
	}
	ctx := p.begin(r, d)
	go func() {
		defer p.done()
		defer close(r.done)
		defer p.ended(r)
		pauses, began := newRetryPauses(), time.Now()
		for last == nil || sleep(ctx, pauses.NextBackOff(), nil) {
			var reply any
			reply, last = call(ctx)
			if last != nil && ctx.Err() != nil {
				return // the error before says more
			}
			r.mu.Lock()
			r.reply, r.err = reply, last
			r.mu.Unlock()
			if last == nil || isOver(last) || permanent(last) && time.Since(began) > releaseTimeout {
				return
			}
		}
	}()
	return r
}

// isOver reports whether a call that has failed so cannot be repeated.
func isOver(err error) bool { return errors.Is(err, redis.ErrClosed) || errors.Is(err, errReply) }

// outcome returns the reply, or why there is none yet.
func (r *retry) outcome() (reply any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reply, r.err
}

// settled waits until all calls are answered, and reports whether they are. It waits for cleanupTimeout at most, and
// after the end of ctx only for a moment.
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
