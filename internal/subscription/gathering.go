package subscription

import (
	"sync"
	"time"
)

// window is how long notifications of several servers count as one.
const window = 2 * time.Millisecond

// Gathering combines the notifications of several servers into one. It is safe for concurrent use.
type Gathering struct {
	quorum int
	notify func()

	mu    sync.Mutex
	count int         // within the window
	open  *time.Timer // ends the window; nil while none is open
	ended bool
}

// Gather returns a Gathering that calls notify when a quorum of servers has notified, or shortly after the first one.
// notify does not block.
func Gather(quorum int, notify func()) *Gathering { return &Gathering{quorum: quorum, notify: notify} }

// Add counts the notification of one server.
func (g *Gathering) Add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	if g.open == nil {
		g.open = time.AfterFunc(window, g.shut)
	}
	g.count++
	if g.count == g.quorum {
		g.notify()
	}
}

// shut ends the window.
func (g *Gathering) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended && g.count < g.quorum {
		g.notify()
	}
	g.count, g.open = 0, nil
}

// Stop ends the Gathering.
func (g *Gathering) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.open != nil {
		g.open.Stop()
	}
}
