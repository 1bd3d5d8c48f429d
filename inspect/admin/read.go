package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

const (
	// readLimit bounds a read, so that a page is shown even if Redis does not answer.
	readLimit = 5 * time.Second
	// fresh is how long what was read is shown to further pages.
	fresh = 300 * time.Millisecond
	// mostRead is how many waiting tasks are read.
	mostRead = 10_000
	// mostWaiters is how many waiters are shown of one key.
	mostWaiters = 200
	keyTopic    = "key:"
)

// reads lets requests for the same thing share one read of Redis.
type reads struct {
	mu      sync.Mutex
	entries map[string]*entry
}

// entry is one read: under way until done is closed.
type entry struct {
	done  chan struct{}
	fresh time.Duration
	at    time.Time
	value any
	err   error
}

// read returns what load has returned at most fresh ago, or lets it read. Load goes on if the request ends, because
// others may wait for it.
func read[T any](ctx context.Context, r *reads, name string, load func(context.Context) (T, error)) (T, error) {
	return readEach(ctx, r, name, fresh, load)
}

// readEach is read with another time than fresh.
func readEach[T any](ctx context.Context, r *reads, name string, fresh time.Duration, load func(context.Context) (T, error)) (T, error) {
	r.mu.Lock()
	e := r.entries[name]
	if e == nil || !e.isUsable() {
		e = &entry{done: make(chan struct{}), fresh: fresh}
		for other, old := range r.entries {
			if !old.isUsable() {
				delete(r.entries, other)
			}
		}
		r.entries[name] = e
		go func() {
			reading, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), readLimit, fmt.Errorf("no answer within %v", readLimit))
			defer cancel()
			e.value, e.err = load(reading)
			if e.err != nil && reading.Err() != nil {
				e.err = fmt.Errorf("%w: %w", context.Cause(reading), e.err)
			}
			e.at = time.Now()
			close(e.done)
		}()
	}
	r.mu.Unlock()
	var none T
	select {
	case <-e.done:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if e.err != nil {
		return none, e.err
	}
	value, ok := e.value.(T)
	if !ok {
		return none, errors.New("admin: two reads have the same name")
	}
	return value, nil
}

// isUsable reports whether a read is under way or fresh.
func (e *entry) isUsable() bool {
	select {
	case <-e.done:
		return time.Since(e.at) < e.fresh
	default:
		return true
	}
}

// forget makes the next read a new one, after an action.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.entries)
}

// snapshot is what is held and what waits.
type snapshot struct {
	Waiting   int                 // how many tasks wait
	Waiters   []delayqueue.Waiter // the oldest of them, the oldest first
	Workers   []inspect.Worker
	Keys      []keyRow
	Truncated bool // more tasks wait than were read
}

// keyRow is a key that is held or waited for.
type keyRow struct {
	Key     string
	Waiters int
	Oldest  time.Time        // the first conflict of the task that has waited longest
	Holding *inspect.Holding // as reported
	Lock    *inspect.Holder  // as the lock servers say, if no worker has reported one; nil if the key is free
}

// snapshot reads what is held and what waits.
func (p *Page) snapshot(ctx context.Context) (*snapshot, error) {
	return read(ctx, &p.reads, "snapshot", func(ctx context.Context) (*snapshot, error) {
		s := &snapshot{}
		inspector := p.opts.Inspector.Queue().Inspector()
		var err error
		if s.Waiting, err = inspector.Count(ctx); err != nil {
			return nil, err
		}
		if s.Waiters, err = inspector.Longest(ctx, mostRead); err != nil {
			return nil, err
		}
		if s.Workers, err = p.opts.Inspector.Workers(ctx); err != nil {
			return nil, err
		}
		s.Truncated = s.Waiting > mostRead
		var awaited []delayqueue.AwaitedKey
		if s.Truncated {
			if awaited, err = inspector.Keys(ctx, mostRead); err != nil {
				return nil, err
			}
		} else {
			s.Waiting = len(s.Waiters) // without those that are gone
		}
		s.Keys = join(s.Waiters, awaited, s.Workers)
		return s, p.readLocks(ctx, s.Keys)
	})
}

// readLocks asks the lock servers about keys that no worker reports as held.
func (p *Page) readLocks(ctx context.Context, rows []keyRow) error {
	var asked []*keyRow
	var keys []string
	for n := range rows {
		if r := &rows[n]; r.Holding == nil {
			asked, keys = append(asked, r), append(keys, r.Key)
		}
	}
	holders, err := p.opts.Inspector.Holders(ctx, keys)
	for n, h := range holders {
		asked[n].Lock = h
	}
	return err
}

// join returns a row for each key. The waiters must be in order, the oldest first.
func join(waiters []delayqueue.Waiter, awaited []delayqueue.AwaitedKey, workers []inspect.Worker) []keyRow {
	var rows []keyRow
	known := map[string]int{}
	row := func(key string) *keyRow {
		i, ok := known[key]
		if !ok {
			i = len(rows)
			known[key], rows = i, append(rows, keyRow{Key: key})
		}
		return &rows[i]
	}
	for _, w := range waiters {
		for _, key := range append([]string{w.Key}, w.Also...) {
			r := row(key)
			r.Waiters++
			if r.Oldest.IsZero() || w.Since.Before(r.Oldest) {
				r.Oldest = w.Since
			}
		}
	}
	for _, k := range awaited {
		r := row(k.Key)
		r.Waiters = max(r.Waiters, k.Waiters)
	}
	for i := range workers {
		for j := range workers[i].Held {
			h := &workers[i].Held[j]
			if r := row(h.Key); r.Holding == nil || h.Since.Before(r.Holding.Since) {
				r.Holding = h
			}
		}
	}
	return rows
}

// held returns since when the key is held; zero if it is free, or if that is not known.
func (r keyRow) held() time.Time {
	switch {
	case r.Holding != nil:
		return r.Holding.Since
	case r.Lock != nil:
		return r.Lock.Since
	default:
		return time.Time{}
	}
}

// orders are those in which keys can be listed.
var orders = map[string]func(a, b keyRow) int{
	"waiters": func(a, b keyRow) int { return cmp.Compare(b.Waiters, a.Waiters) },
	"wait":    func(a, b keyRow) int { return earlier(a.Oldest, b.Oldest) },
	"hold":    func(a, b keyRow) int { return earlier(a.held(), b.held()) },
}

// sorted returns the keys in an order.
func sorted(rows []keyRow, by string) []keyRow {
	order := orders[by]
	return slices.SortedFunc(slices.Values(rows), func(a, b keyRow) int {
		return cmp.Or(order(a, b), earlier(a.held(), b.held()), cmp.Compare(a.Key, b.Key))
	})
}

// earlier orders times; none comes last.
func earlier(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	default:
		return a.Compare(b)
	}
}

// look reads the state of a key.
func (p *Page) look(ctx context.Context, key string) (inspect.KeyState, error) {
	return read(ctx, &p.reads, keyTopic+key, func(ctx context.Context) (inspect.KeyState, error) {
		return p.opts.Inspector.Look(ctx, key, mostWaiters)
	})
}

// nodes reads the state of the lock servers.
func (p *Page) nodes(ctx context.Context) ([]inspect.Node, error) {
	return read(ctx, &p.reads, "nodes", p.opts.Inspector.Nodes)
}
