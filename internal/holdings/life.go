package holdings

import (
	"sync"
	"time"
)

// Life knows for how long other workers have been silent, from the looks of one worker at their signs of life. It goes by the monotonic clock of this process alone: a look shows a sign that was not there before, or the same as
// the last look. The clock of Redis only tells how much of the time between two looks a new sign is old.
//
// What this process cannot have seen counts for nothing: after a look that failed, and after a pause between two looks,
// everybody counts as heard at that moment. The zero value has never looked. It is safe for concurrent use.
type Life struct {
	mu     sync.Mutex
	since  time.Time // of looks without a gap; zero for none
	looked time.Time // when the last look was answered
	clock  int64     // of Redis then (ms)
	heard  map[string]sign
}

// sign is the last sign of life of a worker.
type sign struct {
	clock int64     // as it was noted (ms)
	at    time.Time // by this process's clock, at the earliest
}

// mostGap is how long two looks may be apart. A worker that has missed one report sends the next one within that time.
const mostGap = 2 * Interval

// sign of a worker, as a look finds it.
type seen struct {
	ID    string
	Clock int64 // ms
}

// missed notes a look that has failed.
func (l *Life) missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Time{}
}

// evenly is how far the clock of Redis and that of this process may drift apart between two looks: it tells the age of a sign then.
const evenly = 100 * time.Millisecond

// found notes a look that was sent and answered at these times, when the clock of Redis stood at clock (ms).
func (l *Life) found(sent, answered time.Time, clock int64, all []seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || sent.Sub(l.looked) > mostGap {
		l.since, l.looked, l.clock, l.heard = answered, answered, clock, map[string]sign{}
	}
	between := answered.Sub(l.looked)
	most := between
	if drift := time.Duration(clock-l.clock)*time.Millisecond - between; drift > evenly || drift < -evenly {
		most = 0 // the clock was set
	}
	heard := make(map[string]sign, len(all)) // without those that have said goodbye
	for _, s := range all {
		last, ok := l.heard[s.ID]
		if ok && s.Clock < last.clock { // a replica has become the master, which may have missed the last signs
			l.since = answered
		}
		if !ok || last.clock != s.Clock {
			age := min(max(time.Duration(clock-s.Clock)*time.Millisecond, 0), most)
			last = sign{s.Clock, answered.Add(-age)}
		}
		heard[s.ID] = last
	}
	l.looked, l.clock, l.heard = answered, clock, heard
}

// dies returns when a worker of which this was the last sign is dead: ok is false if that is never. The caller holds the mutex.
func (l *Life) dies(id string, s sign) (at time.Time, ok bool) {
	after := AfterOf(id)
	at = s.at
	if at.Before(l.since) {
		at = l.since
	}
	return at.Add(after), after > 0 && !l.since.IsZero()
}

// Last is the last sign of life of a worker that is dead.
type Last struct {
	ID    string
	Clock int64 // ms
}

// Dead returns the workers that were dead at the last look, by their names: they had been silent for as long as they say themselves
// that it takes. A worker that has not been heard of is not dead.
func (l *Life) Dead() map[string]Last {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]Last{}
	for id, s := range l.heard {
		if at, ok := l.dies(id, s); ok && !at.After(l.looked) {
			all[NameOf(id)] = Last{id, s.clock}
		}
	}
	return all
}

// Next returns when the next worker would be dead; zero if there is none.
func (l *Life) Next() (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.heard {
		if at, ok := l.dies(id, s); ok && at.After(l.looked) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
