package locking

import (
	"context"
	"sync"
	"time"
)

// pending counts what a Locker still has to tell its servers. The zero value is ready for use.
type pending struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil when nothing waits for that
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

// wait returns when n is 0, or after d.
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
