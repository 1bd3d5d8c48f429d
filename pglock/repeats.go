package pglock

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	closePause   = 5 * time.Second // the longest wait of Close
	maxRepeats   = 4096            // beyond that, leases end with their TTL
	batchSize    = 256             // grants that are released by one call

	// lateness is how much longer than its TTL an attempt without an answer is undone: a server that was stopped may
	// grant it when it continues.
	lateness = 10 * time.Second
)

// repeats repeats releases that were not answered, and undoes attempts that were not answered, in the background: so
// that no key stays locked without a holder once the server answers. A goroutine runs only while there is something to
// do.
type repeats struct {
	db     *sql.DB
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	pending map[*repeat]bool
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
	asked   bool          // the server has answered once
	done    chan struct{} // closed when it is over
}

func newRepeats(db *sql.DB) *repeats {
	r := &repeats{db: db, pending: map[*repeat]bool{}, tried: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// add repeats the release of a grant until it is answered, or the lease has expired. Without granted it is repeated
// until it has found the grant. The channel is closed after the answer; it is nil if nothing is repeated.
func (r *repeats) add(g *grant, granted bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.pending) >= maxRepeats {
		return nil
	}
	e := &repeat{grant: g, granted: granted, until: time.Now().Add(g.ttl), done: make(chan struct{})}
	if !granted {
		e.until = e.until.Add(lateness)
	}
	r.pending[e] = true
	if !r.running {
		r.running = true
		r.all.Go(r.repeat)
	}
	return e.done
}

// repeat runs until nothing is left.
func (r *repeats) repeat() {
	pause := firstPause
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, longestPause)
		batch := r.due()
		if len(batch) == 0 {
			return
		}
		grants := make([]*grant, len(batch))
		for i, e := range batch {
			grants[i] = e.grant
		}
		ctx, cancel := context.WithTimeout(r.ctx, acquireTimeout)
		rows, err := release(ctx, r.db, grants)
		cancel()
		if err == nil {
			r.answered(batch, rows)
		}
		select {
		case r.tried <- struct{}{}:
		default:
		}
	}
}

// due returns what to release now, and ends what has lasted too long. It says that nothing runs if it returns nothing.
func (r *repeats) due() []*repeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var batch []*repeat
	for e := range r.pending {
		switch {
		case now.After(e.until):
			delete(r.pending, e)
		case len(batch) < batchSize:
			batch = append(batch, e)
		}
	}
	r.running = len(batch) > 0
	return batch
}

// answered records the answer to a batch.
func (r *repeats) answered(batch []*repeat, rows []releasedRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := 0
	for _, e := range batch {
		e.asked = true
		next := first + len(e.grant.keys)
		found := false
		for _, row := range rows {
			found = found || row.place >= first && row.place < next
		}
		if e.granted || found {
			delete(r.pending, e)
			close(e.done)
		}
		first = next
	}
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
	for e := range r.pending {
		if !e.asked {
			return true
		}
	}
	return false
}
