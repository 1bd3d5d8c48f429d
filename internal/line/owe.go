package line

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// followUpFirst is when a wake is checked, and followUpMost the longest time between two checks of the same tasks.
	followUpFirst = 500 * time.Millisecond
	followUpMost  = 30 * time.Second
	followUpLimit = 5 * time.Second // bounds one check
	// unmadeFirst is when a wake is made again first that Redis has not answered: after a caller that repeats it has done so.
	unmadeFirst = 800 * time.Millisecond
)

// headLook is when a head is looked at again that has failed and still waits for its retry.
const headLook = 300 * time.Millisecond

const (
	// owedAfter is how long after a wake another process looks whether a task has come. The process that has sent the wake
	// has looked by then, and has noted that nothing is owed any more.
	owedAfter = 2 * followUpFirst
	// owedMost is how many keys one look is for, and owedLater when it looks again at one of which no waiter can run.
	owedMost  = 1000
	owedLater = 10 * time.Second
)

// owe notes that a wake is owed for a key. A server looks after it once the time in is over.
func (e *Engine) owe(ctx context.Context, key string, in time.Duration) error {
	err := e.step(ctx, oweStep, e.names.owed(key), e.names.Waiters(key), 1, in.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) { // it returns nothing
		return nil
	}
	return err
}

// paid notes that a wake is not owed any more for which a note says that somebody looks after it at a time. A later note is
// that of another wake, and stays.
func (e *Engine) paid(ctx context.Context, key string, at time.Time) error {
	return e.step(ctx, paidStep, e.names.owed(key), e.names.Waiters(key), time.Until(at).Milliseconds()+1).Err()
}

// Watch has the waiters of key looked after until one of them is woken, whichever processes end meanwhile. Call it when a
// task waits behind a head that has failed: nobody releases the key when an operator deletes or archives that.
func (e *Engine) Watch(ctx context.Context, key string) error { return e.owe(ctx, key, headLook) }
