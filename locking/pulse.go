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
	// slack is by how much the wall clock may get ahead within a beat before the leases look at it.
	slack = time.Millisecond
)

// pulse tells leases that the machine was suspended or that its wall clock was set forward, within a [beat]: their timers run by the monotonic clock,
// which stands still meanwhile. The leases of a Locker share one, which costs less than a look of each of them. The zero value is ready.
type pulse struct {
	read func() (now, wall time.Time) // as that of a stopwatch

	mu      sync.Mutex
	watch   stopwatch
	leases  map[*Lease]struct{}
	beating bool
}

// now returns the present moment, for leases that have this pulse.
func (p *pulse) now() Instant { return Instant{startStopwatch(p.read), p} }

// add makes the pulse one of a lease too, until drop.
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

// beat compares the clocks, and has all leases look at them when the wall clock got ahead. It goes on while there are leases.
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
