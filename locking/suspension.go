package locking

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
)

const (
	// suspensionInterval is how often a suspensionDetector compares the clocks.
	suspensionInterval = time.Second
	// clockSlack is how far the wall clock may get ahead in one interval.
	clockSlack = time.Millisecond
)

// instant is when a lease begins.
type instant struct {
	watch      leasing.Stopwatch
	suspension *suspensionDetector // of the Locker
	lapses     int64               // of its silence, until then
	worker     string              // that locks which are taken then tell; "" for none
}

// suspensionDetector notices within a second that the machine was suspended or its wall clock was set forward, and has
// the leases check their time: their timers follow the monotonic clock, which stands still during a suspension. The
// leases of a Locker share one. The zero value is ready for use.
type suspensionDetector struct {
	read func() (now, wall time.Time) // for its stopwatches; nil for the clocks of this machine

	silence silence

	mu      sync.Mutex
	watch   leasing.Stopwatch
	leases  map[timed]struct{}
	running bool
}

// timed is a [Lease] as its suspensionDetector knows it.
type timed interface {
	tick()
	ownedBy(name string) bool
	verify()
}

// now returns the present moment, for leases that use this detector.
func (d *suspensionDetector) now() instant {
	lapses := d.silence.lapses.Load()
	return instant{leasing.StartStopwatch(d.read), d, lapses, d.silence.worker()}
}

// owner returns the value of a lock that is taken then.
func (i instant) owner(label string, block int) string {
	return lockwire.NewOwner(label, block, i.watch.Last(), i.worker)
}

// add registers a lease.
func (d *suspensionDetector) add(l timed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leases == nil {
		d.leases = map[timed]struct{}{}
	}
	d.leases[l] = struct{}{}
	if !d.running {
		d.running = true
		d.watch = leasing.StartStopwatch(d.read)
		time.AfterFunc(suspensionInterval, d.check)
	}
}

// drop removes a lease.
func (d *suspensionDetector) drop(l timed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, l)
}

// check compares the clocks once, and continues to do so while there are leases.
func (d *suspensionDetector) check() {
	d.mu.Lock()
	if d.running = len(d.leases) > 0; !d.running {
		d.mu.Unlock()
		return
	}
	time.AfterFunc(suspensionInterval, d.check)
	var all []timed
	if d.watch.GotAhead() > clockSlack || d.silence.err() != nil {
		all = slices.Collect(maps.Keys(d.leases))
	}
	d.mu.Unlock()
	for _, l := range all {
		l.tick()
	}
}

// look has all leases check whether they are over.
func (d *suspensionDetector) look() {
	d.mu.Lock()
	all := slices.Collect(maps.Keys(d.leases))
	d.mu.Unlock()
	for _, l := range all {
		l.tick()
	}
}
