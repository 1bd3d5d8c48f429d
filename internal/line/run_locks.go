package line

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// Colocate has the locks of tasks taken as the tasks are fetched, and released as they are acknowledged. Call it before
// [Engine.Conn], and only if the locks are on the Redis of the tasks. nil changes nothing.
func (e *Engine) Colocate(locks colocated.Locks) { e.locks = locks }

// LocksAre tells the Engine the names of the locks of keys, which are on the Redis of the tasks. It must be called before the
// first use.
func (e *Engine) LocksAre(lockOf func(key string) (lock, notify string)) { e.lockOf = lockOf }

// Colocates reports whether these locks are taken and released with the tasks.
func (e *Engine) Colocates(locks colocated.Locks) bool {
	return e != nil && e.locks != nil && e.locks == locks
}

// HasColocated reports whether locks are taken and released with the tasks.
func (e *Engine) HasColocated() bool { return e.locks != nil }

// Learn notes that the handler of a type of tasks locks the keys that its tasks were recorded with, for a TTL, whatever
// other tasks wait for them. From then on such tasks are locked before asynq has them: as they are fetched if the locks
// are on their Redis, and else by the Parker. If the locks are not free, the Parker decides about them. Tasks without a
// record count if the Parker knows their keys.
func (r *Run) Learn(kind string, keys []string, ttl time.Duration, parker Parker) {
	switch {
	case r == nil:
	case r.recorded == "" && parker.Keys() == nil:
	case r.recorded == "", r.recorded == r.queue.names.encoded(keys):
		wait := r.queue.parkers.learn(kind, parker).Wait()
		wait.Order = parker.Wait().Order
		r.queue.types.Learn(kind, ttl, wait)
	default:
		r.queue.types.Doubt(kind)
	}
}

// Claim returns the lease of the task, or else the locks that were taken with it, and leaves them to the caller; nil if there
// are none.
func (r *Run) Claim() (colocated.Held, *colocated.Taken) {
	if r == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	held, taken := r.held, r.taken
	r.held, r.taken = nil, nil
	return held, taken
}

// Reject releases locks that were taken with the task and are of no use to its handler: a lease, or else those taken.
func (r *Run) Reject(ctx context.Context, held colocated.Held, taken *colocated.Taken) {
	var release *colocated.Release
	if held != nil {
		release = held.Release(r.queue.freed)
	} else {
		release = taken.Release(r.queue.freed)
	}
	if release != nil {
		release.Run(ctx, false)
	}
}

// Outdated removes the record of the task's keys if its handler locks others, as after asynq's UpdateTaskPayload. With the
// record, the task's next fetch would wait for the old keys again.
func (r *Run) Outdated(ctx context.Context, keys []string) {
	if r != nil && r.recorded != "" && r.recorded != r.queue.names.encoded(keys) {
		_ = r.queue.client.HDel(ctx, r.task.Hash(), "railtoken:keys").Err() // the next run tries again
	}
}

// Mistaken notes that the handler locks other keys than those that were recorded. Tasks of this type are fetched without
// locks until enough records in a row were correct.
func (r *Run) Mistaken(ctx context.Context, kind string, keys []string) {
	if r.queue.types.Forget(kind) {
		r.queue.log.WarnContext(ctx, "a task is recorded with other keys than its handler locks; tasks of its type take longer "+
			"for a while: let the producer and the handler use the same key function", "task", r.task.String(), "type", kind)
	}
	r.Outdated(ctx, keys)
}

// unacknowledged is how long after the end of a handler its locks are kept for the acknowledgement, and for its answer.
// No acknowledgement comes if asynq's lease on the task has ended, and no answer while Redis cannot be reached.
const unacknowledged = time.Second

// ReleaseOptions is how a run releases its keys.
type ReleaseOptions struct {
	Keys []string // of the lease
	// Committed says that the work is done even if the lease was lost before the acknowledgement.
	Committed bool
	// Place is what becomes of the task's place in the sequence of its key.
	Place colocated.Place
	// Followed says that the next task of the keys is to have another one waiting for it in memory.
	Followed bool
	// Defer ends the lease of locks for which [Engine.Colocates] is true, or hands it off, and leaves the rest to the
	// acknowledgement. It returns nil if the caller must release the lease: it is over.
	Defer func(done func(colocated.Outcome, error)) *colocated.Release
	// Done is called once, with the tasks that the acknowledgement has woken for some of the keys, and the error of the
	// release. If the outcome is not Scripted, the task may still have its place.
	Done func(woken map[string]Woken, o colocated.Outcome, err error)
}

// Release ends a lease with the acknowledgement of the run, which carries out its release, or without it if none comes.
// Unless the work is committed, a success does not count if the lease was lost by then: the task runs again. Release
// reports false, and does nothing, if the caller must release the lease: Defer has returned nil, the run is over, its
// task waits for a key, or a key is in another lane.
func (r *Run) Release(opts ReleaseOptions) bool {
	if r == nil || r.queue.locks == nil || !r.queue.Together(r.task.Queue, opts.Keys...) || !r.current() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parking != nil || r.release != nil || r.putBack {
		return false
	}
	keys, done, inOrder := opts.Keys, opts.Done, opts.Place != colocated.NoPlace
	release := opts.Defer(func(o colocated.Outcome, err error) {
		done(r.queue.wokenWith(keys, o.Woken, inOrder), o, err)
	})
	if release == nil {
		return false
	}
	release.Strict, release.Place = !opts.Committed, opts.Place
	if opts.Place != colocated.Stays && !release.Awaited {
		if !release.Kept { // one takes the key
			release.Wakes++
		}
		if opts.Followed && release.HandsOff { // and one follows it
			release.Wakes++
		}
	}
	r.release = release
	due := time.AfterFunc(unacknowledged, func() {
		if left := r.takeRelease(); left != nil {
			left.Run(context.Background(), false)
		} else {
			release.Late()
		}
	})
	release.Then(func(colocated.Outcome, error) { due.Stop() })
	return true
}

// wokenWith returns the tasks that an acknowledgement has woken, by their keys, and has the wakes followed up. In order, no
// other task may come in place of one that was woken.
func (e *Engine) wokenWith(keys []string, all []colocated.Woken, inOrder bool) map[string]Woken {
	if len(all) == 0 {
		return nil
	}
	byKey := map[string]Woken{}
	for _, one := range all {
		if one.Key < 1 || one.Key > len(keys) {
			continue
		}
		key, w := keys[one.Key-1], Woken{Tasks: tasksOf(one.Entries), Left: one.Left}
		e.held.Woke(key, len(w.Tasks))
		for _, t := range w.Tasks {
			if e.woken != nil && one.Pending > 0 {
				e.woken(t)
			}
		}
		target := wakeTarget{key: key}
		if inOrder && len(w.Tasks) > 0 {
			target.task = w.Tasks[0]
		}
		e.followUp(call{target: target}, w)
		byKey[key] = w
	}
	return byKey
}

// takeRelease returns the release of the locks of a run, if it is still to be carried out.
func (r *Run) takeRelease() *colocated.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	release := r.release
	switch {
	case release != nil:
	case r.held != nil:
		release = r.held.Release(r.queue.freed)
	case r.taken != nil:
		release = r.taken.Release(r.queue.freed)
	}
	r.release, r.held, r.taken = nil, nil, nil
	return release
}

// releaseAll carries out the releases whose acknowledgements have not come, all at the same time. Close waits for them
// as for parks.
func (e *Engine) releaseAll() {
	for _, r := range e.runs.all() {
		if release := r.takeRelease(); release != nil {
			e.background(e.parking, CloseLimit, func(ctx context.Context) { release.Run(ctx, false) })
		}
	}
}

// Release returns what is left of a task's locks once its run ends: see [broker.Tasks].
func (e *tasks) Release(a broker.Acknowledgement) (*colocated.Release, func()) {
	r := e.ending(a)
	if r == nil || a.Repeated {
		return nil, nil
	}
	release := r.takeRelease()
	if release != nil && !succeeds(a) {
		release.Strict = false
	}
	return release, r.runAgain
}

// runAgain lets asynq run a task again whose lease was lost. Its retry count stays as it is, because asynq takes the run
// for a success, and acknowledges it no more.
func (r *Run) runAgain() {
	r.queue.runs.add(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = time.Now()
	again := &parking{opts: ParkOptions{RetryAfter: time.Second}}
	if !r.parkInBackground(again, r.ended.Add(backgroundLimit)) {
		r.queue.log.Warn("a task whose lease was lost could not be put back; asynq recovers it", "task", r.task.String())
	}
}

// freed wakes a task for each of some keys that were released, because their task went back.
func (e *Engine) freed(keys []string) {
	e.background(e.closing, freedTimeout, func(ctx context.Context) {
		for _, key := range keys {
			if _, err := e.WakeNext(ctx, key, WakeOptions{}); err != nil {
				e.log.WarnContext(ctx, "the next task was not woken; the wake is made again once Redis answers", "error", err)
			}
		}
	})
}

// freedTimeout bounds the wakes after a release.
const freedTimeout = 5 * time.Second
