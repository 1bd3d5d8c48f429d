package locking

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// beat is how often a pulse compares the clocks.
	beat = time.Second
	// slack is how far the wall clock may get ahead within a beat.
	slack = time.Millisecond
)

// pulse notifies leases within a [beat] that the machine was suspended or its wall clock was set forward: their timers
// run by the monotonic clock, which stands still meanwhile. The leases of a Locker share one. The zero value is ready
// for use.
type pulse struct {
	read func() (now, wall time.Time) // of its stopwatches

	mu      sync.Mutex
	watch   stopwatch
	leases  map[*Lease]struct{}
	beating bool
}

// now returns the present moment, for leases that have this pulse.
func (p *pulse) now() instant { return instant{startStopwatch(p.read), p} }

// add makes the pulse look after a lease, until drop.
func (p *pulse) add(l *Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases == nil {
		p.leases = map[*Lease]struct{}{}
	}
	p.leases[l] = struct{}{}
	if !p.beating {
		p.beating = true
		p.watch = startStopwatch(p.read)
		time.AfterFunc(beat, p.beat)
	}
}

func (p *pulse) drop(l *Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leases, l)
}

// beat compares the clocks, and has all leases check their time when the wall clock got ahead. It goes on while there
// are leases.
func (p *pulse) beat() {
	p.mu.Lock()
	if p.beating = len(p.leases) > 0; !p.beating {
		p.mu.Unlock()
		return
	}
	time.AfterFunc(beat, p.beat)
	var all []*Lease
	if p.watch.gotAhead() > slack {
		all = slices.Collect(maps.Keys(p.leases))
	}
	p.mu.Unlock()
	for _, l := range all {
		l.tick()
	}
}
