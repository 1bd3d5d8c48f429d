package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// fresh is the age up to which the result of an attempt is used again.
	fresh = time.Second
	// patience is how long an attempt is waited for.
	patience = 2 * time.Second
)

// Probe tries something when it is asked for evidence: one attempt at a time for all callers, and at most one a second.
// It is safe for concurrent use.
type Probe struct {
	// Try makes an attempt. Its context ends after 2 s. An attempt that goes on for longer has failed, and no other
	// begins before it has ended.
	Try func(context.Context) error

	mu      sync.Mutex
	found   Evidence
	tried   time.Time     // the end of the last attempt
	began   time.Time     // the beginning of the last attempt
	pending chan struct{} // closed at the end of the attempt under way; nil when there is none
}

// Look returns what is known after an attempt. It waits for 2 s at most, and no longer than ctx lasts.
func (p *Probe) Look(ctx context.Context) Evidence {
	p.mu.Lock()
	if time.Since(p.tried) < fresh {
		defer p.mu.Unlock()
		return p.found
	}
	if p.pending == nil {
		p.pending, p.began = make(chan struct{}), time.Now()
		go p.attempt()
	}
	pending := p.pending
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-pending:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	if p.pending == pending { // the attempt goes on
		found.failed(p.began, errors.Join(found.Err, fmt.Errorf("no answer: %w", context.Cause(ctx))))
	}
	return found
}

// attempt makes one attempt.
func (p *Probe) attempt() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.Try(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried = time.Now()
	if err == nil {
		p.found = Evidence{Last: p.tried}
	} else {
		p.found.failed(p.began, err)
	}
	close(p.pending)
	p.pending = nil
}

// failed notes that an attempt has failed.
func (e *Evidence) failed(began time.Time, err error) {
	if e.Err == nil {
		e.Failing = began
	}
	e.Err = err
}
