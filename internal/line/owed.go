package line

import (
	"context"
	_ "embed"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/owed.lua
	owedSource string

	owedScript = redis.NewScript(owedSource)
)

const (
	// owedAfter is how long after a wake another process looks whether a task has come. The process that has sent the wake
	// has looked by then, and has noted that nothing is owed any more.
	owedAfter = 2 * followUpFirst
	// owedLook is the time between two looks for owed wakes.
	owedLook = 400 * time.Millisecond
	// owedMost is how many keys one look is for, and owedLater when it looks again at one of which no waiter can run.
	owedMost  = 1000
	owedLater = 10 * time.Second
)

// owed is the name of the sorted set of the keys for which a wake is owed: see owe.lua.
func (e *Engine) owed() string { return e.index + ":owed" }

// Watch has the waiters of key looked after until one of them is woken, whichever processes end meanwhile. Call it when a
// task waits behind a head that has failed: nobody releases the key when an operator deletes or archives that.
func (e *Engine) Watch(ctx context.Context, key string) error { return e.owe(ctx, key, headLook) }

// owe notes that a wake is owed for a key. A server looks after it once the time in is over.
func (e *Engine) owe(ctx context.Context, key string, in time.Duration) error {
	err := e.step(ctx, oweStep, e.owed(), WaitersKey(key), 1, in.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) { // it returns nothing
		return nil
	}
	return err
}

// paid notes that a wake is not owed any more for which a note says that somebody looks after it at a time. A later note is
// that of another wake, and stays.
func (e *Engine) paid(ctx context.Context, key string, at time.Time) error {
	return e.step(ctx, paidStep, e.owed(), WaitersKey(key), time.Until(at).Milliseconds()+1).Err()
}

// lookAfter looks for owed wakes until the Engine is closed.
func (e *Engine) lookAfter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.looks != nil {
		return
	}
	end := make(chan struct{})
	e.looks = end
	e.pending.Go(func() {
		tick := time.NewTicker(owedLook)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if e.idleLooks.suffice() {
				continue
			}
			ctx, cancel := context.WithTimeout(e.closing, followUpLimit)
			if err := e.payOwed(ctx); err != nil && e.closing.Err() == nil && !failing(err) {
				e.log.WarnContext(ctx, "a wake could not be followed up; the waiters' timers will bring them back", "error", err)
			}
			cancel()
		}
	})
}

// idleLooks knows when the looks of idle servers, which cost nothing more for it, have found that no wake is owed. It is safe
// for concurrent use.
type idleLooks struct {
	mu    sync.Mutex
	asked time.Time // when the last one was sent
	found time.Time // when one has found that no wake was owed
}

// due reports whether the next look of an idle server is for owed wakes, too. It is, twice in the time between two looks.
func (l *idleLooks) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.asked) < owedLook/2 {
		return false
	}
	l.asked = now
	return true
}

// none notes that no wake is owed.
func (l *idleLooks) none() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.found = time.Now()
}

// suffice reports whether such a look has just found that no wake is owed.
func (l *idleLooks) suffice() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.found) < owedLook
}

// failing reports whether Redis cannot be reached, which others log.
func failing(err error) bool {
	var refusal redis.Error
	return !errors.As(err, &refusal)
}

// payOwed looks for keys for which a wake is owed, and wakes the next task of each. If there are none, it makes one call to
// Redis.
func (e *Engine) payOwed(ctx context.Context) error {
	if n, err := e.client.ZCard(ctx, e.owed()).Result(); err != nil || n == 0 {
		return err
	}
	r := replyOf(owedScript.Run(ctx, e.client, []string{e.owed()}, owedAfter.Milliseconds(), owedMost))
	at := time.Now().Add(owedAfter)
	now := int64(r.number())
	var due []string
	for _, waiters := range r.texts(len(r.rest)) {
		if key, ok := KeyOf(waiters); ok {
			due = append(due, key)
		}
	}
	if r.err != nil {
		return r.err
	}
	soon, others := e.stillFailed(ctx, due)
	var err error
	for _, key := range others {
		failed, wrong := e.pay(ctx, key, at)
		if wrong != nil {
			err = wrong
		}
		if failed {
			soon = append(soon, key)
		}
	}
	return errors.Join(err, e.lookSoon(ctx, now, soon))
}

// pay wakes the next task of a key, unless the head of its sequence has failed and keeps its position. A note says that
// somebody looks after the key at a time.
func (e *Engine) pay(ctx context.Context, key string, at time.Time) (failed bool, _ error) {
	front, err := e.Front(ctx, key)
	e.failed.note(key, front)
	switch {
	case err != nil:
		return false, err
	case len(front.Next) == 0 && front.Parked == 0, front.Failed && len(front.Next) == 1:
		return false, e.paid(ctx, key, at)
	case front.Failed:
		return true, nil
	}
	w, err := e.WakeNext(ctx, key, WakeOptions{})
	e.repaired(key, w, false)
	switch {
	case err != nil || len(w.Tasks) > 0:
		return false, err
	case len(front.Next) > 0: // the head comes by itself, or runs, and its release wakes the next
		return false, e.paid(ctx, key, at)
	default:
		return false, e.owe(ctx, key, owedLater)
	}
}
