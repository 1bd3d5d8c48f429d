package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// timeout bounds what is asked of one lock server.
const timeout = 2 * time.Second

// KeyState is what is known about one key.
type KeyState struct {
	Key string
	// Holder holds the key; nil if it is free. With several lock servers, the holder has the lock on most of them. If no
	// lock server has a lock, Holder is the task that holds the key in another store, as far as a worker has reported it:
	// see [Holder].Backend.
	Holder *Holder
	// Servers has one entry for each lock server, in the order of [Options].Nodes.
	Servers []ServerLock
	// Waiting is how many tasks are parked on the key, and Waiters are the first of them, at most as many as Look was
	// asked for. Sequence has the first tasks of the sequence, if the tasks of the key run in order.
	Waiting  int
	Waiters  []delayqueue.Waiter
	Sequence []delayqueue.Waiter
}

// Head returns the head of the sequence, for which its other tasks wait: the first that has not ended. It is nil if the tasks
// keep no order.
func (k KeyState) Head() *delayqueue.Waiter {
	for i := range k.Sequence {
		switch k.Sequence[i].State {
		case delayqueue.StateGone, delayqueue.StateArchived, "completed":
		default:
			return &k.Sequence[i]
		}
	}
	return nil
}

// Holder is the holder of a key.
type Holder struct {
	// Owner identifies the acquisition of the lock. It is the same on all lock servers, and [Inspector.Depose] expects
	// it. It stays the same when a process hands the lock off to another of its tasks. It is empty if Backend is set.
	Owner string
	// Backend is empty if the lock is on the lock servers. Otherwise the lock is in a store that the Inspector does not
	// see, such as PostgreSQL with package pglock, and Backend names the package. All that is known then is what the
	// worker has reported in the last 15 s: Since is when the handler began, Remaining and Votes are 0, and
	// [Inspector.Depose] cannot take the key away.
	Backend string
	// Label is the holder's own name; empty when another program holds the key.
	Label string
	// Since is when the lock was taken, by the holder's clock; zero when another program holds the key.
	Since time.Time
	// Remaining is how long the lock lasts without a renewal; negative if it has no end.
	Remaining time.Duration
	// Fence is the largest token that the holder can have: all tokens up to it are reserved for its process.
	Fence int64
	// Task is the task that holds the key, as its worker has reported it within the last few seconds; nil if no worker
	// has.
	Task *Holding
	// Running is the task that holds the key: as in Task, or else the active one that Label names; zero if it is not known.
	Running delayqueue.Task
	// Silent is how long ago the worker of that task was last heard of, if that is more than 15 s ago: it is stopped, is
	// cut off from Redis, or has died. Otherwise it is 0.
	Silent time.Duration
	// Votes is how many lock servers have the lock.
	Votes int
}

// ServerLock is the state of a key on one lock server.
type ServerLock struct {
	Addr string
	// Owner is the owner of the lock; empty if there is no lock. Label, Since, Remaining and Fence are as in [Holder].
	Owner, Label string
	Since        time.Time
	Remaining    time.Duration
	Fence        int64
	// Notified reports whether callers wait for the release in their processes.
	Notified bool
	// Err says why the server could not be queried; nil if it was.
	Err error

	mark string // of the owner
}

// Look returns the state of a key, with the first n of the tasks that wait for it. The state is not a snapshot: tasks and
// locks come and go meanwhile. Look returns an error if no lock server answers, or if the Redis of the tasks does not.
//
// It makes one call to each lock server, all at the same time, and about ten to the Redis of the tasks.
func (i *Inspector) Look(ctx context.Context, key string, n int) (KeyState, error) {
	k := KeyState{Key: key}
	var err error
	if k.Servers, err = i.locks(ctx, key); err != nil {
		return k, err
	}
	k.Holder = holderOf(k.Servers, i.quorum())
	inspector := i.queue.Inspector()
	if k.Waiting, err = i.waiting(ctx, key); err != nil {
		return k, err
	}
	if k.Waiters, err = inspector.Waiters(ctx, key, n); err != nil {
		return k, err
	}
	if k.Sequence, err = inspector.Sequence(ctx, key, n); err != nil {
		return k, err
	}
	workers, err := i.Workers(ctx)
	if err != nil {
		return k, err
	}
	if k.Holder != nil {
		k.Holder.Task = reported(workers, key, k.Holder)
	} else if k.Holder, err = i.unseenHolder(ctx, workers, key); err != nil || k.Holder == nil {
		return k, err
	}
	return k, i.readRunning(ctx, k.Holder)
}

// reported returns what the reports say about the holder of a key, or nil. A report is of use if it is of the process
// that has taken the lock, whose label begins with the host and the PID, and if it was made since then: an earlier one
// is about an earlier holder.
func reported(workers []Worker, key string, h *Holder) *Holding {
	for _, w := range workers {
		if w.Seen.Before(h.Since) {
			continue
		}
		for n := range w.Held {
			if w.Held[n].Key == key && strings.HasPrefix(h.Label, w.Host+"/"+strconv.Itoa(w.PID)+"/") {
				return &w.Held[n]
			}
		}
	}
	return nil
}

// locks asks all lock servers about a key.
func (i *Inspector) locks(ctx context.Context, key string) ([]ServerLock, error) {
	names, err := lockwire.KeysOf(key, i.opts.RedisKey)
	if err != nil {
		return nil, err
	}
	if len(i.servers) == 0 {
		return nil, errors.New("inspect: the Inspector has no lock servers: make it by New")
	}
	found := make([]ServerLock, len(i.servers))
	var all sync.WaitGroup
	for n, s := range i.servers {
		all.Go(func() { found[n] = s.look(ctx, names) })
	}
	all.Wait()
	errs := make([]error, 0, len(found))
	for _, l := range found {
		if l.Err == nil {
			return found, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", l.Addr, l.Err))
	}
	return found, fmt.Errorf("inspect: no lock server answers: %w", errors.Join(errs...))
}

// look asks one lock server about a key.
func (s *server) look(ctx context.Context, names lockwire.Keys) ServerLock {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var value, fence *redis.StringCmd
	var left *redis.DurationCmd
	var notify *redis.IntCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		value, left = p.Get(ctx, names.Lock), p.PTTL(ctx, names.Lock)
		fence, notify = p.Get(ctx, names.Fence), p.Exists(ctx, names.Notify)
		return nil
	})
	l := ServerLock{Addr: s.addr}
	if err != nil && !errors.Is(err, redis.Nil) {
		l.Err = err
		return l
	}
	l.Fence, l.Notified = counterOf(fence.Val()), notify.Val() > 0
	if value.Err() != nil {
		return l
	}
	o := lockwire.ParseOwner(value.Val())
	l.Owner, l.Label, l.Since, l.Remaining = lockwire.Name(value.Val()), o.Label, o.Since, left.Val()
	l.mark = o.Mark
	return l
}

// counterOf returns the fence counter, without the marks behind it; 0 for none.
func counterOf(text string) int64 {
	text, _, _ = strings.Cut(text, " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// holderOf returns the owner that has the lock on a quorum of the servers, or nil. Servers that did not answer count as
// if they had nothing, unless so many are silent that no owner can have a quorum: then the owner with most votes
// counts.
func holderOf(found []ServerLock, quorum int) *Holder {
	votes, silent := map[string]int{}, 0
	var best string
	for _, l := range found {
		if l.Err != nil {
			silent++
		}
		if l.Owner == "" {
			continue
		}
		votes[l.Owner]++
		if best == "" || votes[l.Owner] > votes[best] {
			best = l.Owner
		}
	}
	if best == "" || votes[best]+silent < quorum {
		return nil
	}
	h := &Holder{Owner: best, Votes: votes[best], Remaining: -1}
	first := true
	for _, l := range found {
		if l.Owner != best {
			continue
		}
		h.Label, h.Since, h.Fence = l.Label, l.Since, max(h.Fence, l.Fence)
		if first || outlasts(l.Remaining, h.Remaining) {
			h.Remaining = l.Remaining
		}
		first = false
	}
	return h
}

// outlasts reports whether the remaining time a is longer than b. A negative time has no end.
func outlasts(a, b time.Duration) bool { return b >= 0 && (a < 0 || a > b) }

// waiting returns how many tasks are parked on a key.
func (i *Inspector) waiting(ctx context.Context, key string) (int, error) {
	n, err := i.opts.Tasks.ZCard(ctx, i.names.Waiters(key)).Result()
	if err != nil {
		return 0, fmt.Errorf("inspect: count the waiters of a key: %w", err)
	}
	return int(n), nil
}
