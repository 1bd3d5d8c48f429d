package line

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker"
)

var (
	//go:embed lua/owed.lua
	owedSource string

	owedScript = redis.NewScript(owedSource)
)

// lookAfter looks for owed wakes and for cancelled tasks until the Engine is closed.
func (e *Engine) lookAfter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.looks != nil {
		return
	}
	end := make(chan struct{})
	e.looks = end
	e.followCancels()
	e.followSupersessions()
	e.pending.Go(func() {
		tick := time.NewTicker(owedLook)
		defer tick.Stop()
		for looked := time.Now(); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if time.Since(looked) >= cancelsLook {
				looked = time.Now()
				if err := e.lookNow(e.carryOutCancels); err != nil {
					e.log.Warn("a cancellation could not be carried out; the next look does so", "error", err)
				}
			}
			if e.idleLooks.suffice() {
				continue
			}
			if err := e.lookNow(e.payOwed); err != nil {
				e.log.Warn("a wake could not be followed up; the waiters' timers will bring them back", "error", err)
			}
		}
	})
}

// lookNow looks for something that is to be done. It returns no error that others log, or that Close has caused.
func (e *Engine) lookNow(look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(e.closing, followUpLimit)
	defer cancel()
	if err := look(ctx); err != nil && e.closing.Err() == nil && !failing(err) {
		return err
	}
	return nil
}

// failing reports whether Redis cannot be reached, which others log.
func failing(err error) bool {
	var refusal redis.Error
	return !errors.As(err, &refusal)
}

// payOwed looks for keys for which a wake is owed, and wakes the next task of each. If there are none, it makes one call to
// Redis, and one more for each lane in which a server may have seen one.
func (e *Engine) payOwed(ctx context.Context) error {
	errs := []error{e.payOwedIn(ctx, OwedIn(e.names.start()))}
	for lane := range e.names.Count() {
		if e.mayOwe(lane) {
			errs = append(errs, e.payOwedIn(ctx, OwedIn(e.names.indexIn(lane))))
		}
	}
	return errors.Join(errs...)
}

// mayOwe reports whether a wake may be owed in a lane, for all that the servers of this process know.
func (e *Engine) mayOwe(lane int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.conns, func(c *broker.Conn) bool { return c.MayOwe(lane) })
}

// payOwedIn looks at one set of keys.
func (e *Engine) payOwedIn(ctx context.Context, owed string) error {
	if n, err := e.client.ZCard(ctx, owed).Result(); err != nil || n == 0 {
		return err
	}
	r := replyOf(owedScript.Run(ctx, e.client, []string{owed}, owedAfter.Milliseconds(), owedMost))
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
	return errors.Join(err, e.lookSoon(ctx, owed, now, soon))
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

// stillFailed divides keys into those whose head still waits for its retry, and the others.
func (e *Engine) stillFailed(ctx context.Context, all []string) (failed, others []string) {
	byQueue := map[string][]string{}
	for _, key := range all {
		if head, ok := e.failed[key]; ok {
			byQueue[head.task.Queue] = append(byQueue[head.task.Queue], key)
		} else {
			others = append(others, key)
		}
	}
	if len(byQueue) == 0 {
		return nil, others
	}
	again := map[string]*redis.FloatSliceCmd{}
	_, _ = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for queue, keys := range byQueue {
			ids := make([]string, len(keys))
			for i, key := range keys {
				ids[i] = e.failed[key].task.ID
			}
			again[queue] = pipe.ZMScore(ctx, asynqwire.Retry(queue), ids...)
		}
		return nil
	}) // without an answer, they are looked at one by one
	for queue, keys := range byQueue {
		for i, key := range keys {
			if due := again[queue].Val(); i < len(due) && int64(due[i]) == e.failed[key].again.Unix() {
				failed = append(failed, key)
			} else {
				others = append(others, key)
			}
		}
	}
	return failed, others
}

// lookSoon has keys of a set looked at again in headLook, sooner than owedAfter. now is the time of the server (ms).
func (e *Engine) lookSoon(ctx context.Context, owed string, now int64, all []string) error {
	if len(all) == 0 {
		return nil
	}
	at := make([]redis.Z, len(all))
	for i, key := range all {
		at[i] = redis.Z{Score: float64(now + headLook.Milliseconds()), Member: e.names.Waiters(key)}
	}
	for some := range slices.Chunk(at, owedMost) {
		if err := e.client.ZAddArgs(ctx, owed, redis.ZAddArgs{XX: true, LT: true, Members: some}).Err(); err != nil {
			return err
		}
	}
	return nil
}
