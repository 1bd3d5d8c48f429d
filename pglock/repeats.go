package pglock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	closePause   = 5 * time.Second // the longest wait of Close
	maxRepeats   = 1 << 16         // beyond that, leases end with their TTL
	batchSize    = 1024            // grants that are released by one call
	roundTimeout = 2 * time.Second // of one call; then another connection is tried

	// lateness is how much longer than its TTL an attempt without an answer is undone: a server that was stopped may
	// grant it when it continues.
	lateness = 10 * time.Second
)

var errEnded = errors.New("the lease has ended in the meantime")

// repeats repeats releases that were not answered, and undoes attempts that were not answered, in the background: so
// that no key stays locked without a holder once the server answers. The oldest come first, and one call follows the
// other until each has been answered. A goroutine runs only while there is something to do.
type repeats struct {
	db     *sql.DB
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	pending []*repeat // oldest first
	running bool
	closed  bool
	all     sync.WaitGroup
	tried   chan struct{} // receives a value after each round
}

// repeat is a release that is repeated.
type repeat struct {
	grant   *grant
	granted bool // otherwise the attempt may be granted later
	until   time.Time
	next    time.Time     // when to ask again
	pause   time.Duration // between answers that leave it open; 0 before the first one
	done    chan struct{} // closed when it is over
	err     error         // why it has failed; set before done is closed
}

func newRepeats(db *sql.DB) *repeats {
	r := &repeats{db: db, tried: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// add repeats the release of a grant until it is answered, or the lease has expired. Without granted it is repeated
// until it has found the grant. It returns nil if nothing is repeated.
func (r *repeats) add(g *grant, granted bool) *repeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.pending) >= maxRepeats {
		return nil
	}
	now := time.Now()
	e := &repeat{grant: g, granted: granted, until: now.Add(g.ttl), next: now.Add(firstPause), done: make(chan struct{})}
	if !granted {
		e.until = e.until.Add(lateness)
	}
	r.pending = append(r.pending, e)
	if !r.running {
		r.running = true
		r.all.Go(r.repeat)
	}
	return e
}

// repeat runs until nothing is left.
func (r *repeats) repeat() {
	pause := firstPause // after a call that has failed
	for {
		batch, wait := r.due()
		if wait < 0 {
			return
		}
		if len(batch) > 0 {
			if err := r.undo(batch); err == nil {
				pause = firstPause
				continue
			} else if isClosed(err) {
				r.giveUp(err)
				return
			}
			wait = pause
			pause = min(2*pause, longestPause)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// due returns what to release now, or how long to wait. It ends what has lasted too long. If nothing is left, it says
// that nothing runs, and returns a negative wait.
func (r *repeats) due() (batch []*repeat, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	wait = longestPause
	left := r.pending[:0]
	for _, e := range r.pending {
		if now.After(e.until) {
			e.end(errEnded)
			continue
		}
		left = append(left, e)
		if until := e.next.Sub(now); until > 0 {
			wait = min(wait, until)
		} else if len(batch) < batchSize {
			batch = append(batch, e)
		}
	}
	clear(r.pending[len(left):])
	r.pending = left
	if len(left) == 0 {
		r.running = false
		return nil, -1
	}
	return batch, wait
}

const undoSQL = "SELECT place, busy FROM railtoken.undo($1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea[])"

// undo makes one call, and records its answer.
func (r *repeats) undo(batch []*repeat) error {
	defer func() {
		select {
		case r.tried <- struct{}{}:
		default:
		}
	}()
	var keys, owners [][]byte
	var of []*repeat // the repeat of each key
	for _, e := range batch {
		for _, form := range e.grant.stored.forms {
			keys, owners, of = append(keys, form), append(owners, e.grant.owner), append(of, e)
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, roundTimeout)
	defer cancel()
	rows, err := r.db.QueryContext(ctx, undoSQL, array(keys), array(owners))
	if err != nil {
		return err
	}
	defer rows.Close()
	found, busy := map[*repeat]bool{}, map[*repeat]bool{}
	for rows.Next() {
		var place int
		var locked bool
		if err := rows.Scan(&place, &locked); err != nil {
			return err
		}
		e := of[place-1]
		found[e], busy[e] = true, busy[e] || locked
	}
	if err := rows.Err(); err != nil {
		return err
	}
	r.answered(batch, found, busy)
	return nil
}

// answered records the answer to a batch: which of its grants were found, and which of those could not be released yet.
func (r *repeats) answered(batch []*repeat, found, busy map[*repeat]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := map[*repeat]bool{}
	now := time.Now()
	for _, e := range batch {
		if !busy[e] && (e.granted || found[e]) {
			over[e] = true
			e.end(nil)
			continue
		}
		e.pause = min(max(2*e.pause, firstPause), longestPause)
		e.next = now.Add(e.pause)
	}
	r.pending = slices.DeleteFunc(r.pending, func(e *repeat) bool { return over[e] })
}

// giveUp ends everything, because no other call can succeed.
func (r *repeats) giveUp(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pending {
		e.end(err)
	}
	r.pending, r.running = nil, false
	select {
	case r.tried <- struct{}{}:
	default:
	}
}

func (e *repeat) end(err error) {
	e.err = err
	close(e.done)
}

// run runs f in the background, unless the Locker is closed.
func (r *repeats) run(f func(ctx context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.all.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, startTimeout)
		defer cancel()
		f(ctx)
	})
}

// close waits until the server has answered everything once, for closePause at most, and ends the rest.
func (r *repeats) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	timer := time.NewTimer(closePause)
	defer timer.Stop()
	for over := false; !over && r.unasked(); {
		select {
		case <-r.tried:
		case <-timer.C:
			over = true
		}
	}
	r.cancel()
	r.all.Wait()
}

// unasked reports whether the server has not answered something yet.
func (r *repeats) unasked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.pending, func(e *repeat) bool { return e.pause == 0 })
}
