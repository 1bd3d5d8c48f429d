package holdings

import (
	"slices"
	"sync"
	"time"
)

// Life knows for how long the processes of other workers have been silent, from the looks of one worker at their signs of
// life. It goes by the monotonic clock of this process alone: a look shows a sign that was not there before, or the same as
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
		if !ok || last.clock != s.Clock {
			age := min(max(time.Duration(clock-s.Clock)*time.Millisecond, 0), most)
			last = sign{s.Clock, answered.Add(-age)}
		}
		heard[s.ID] = last
	}
	l.looked, l.clock, l.heard = answered, clock, heard
}

// dies returns when each process that has been heard of is dead: the times of the last signs of its workers, and for each of them what
// it says after how long it is. The caller holds the mutex.
func (l *Life) dies() map[string]time.Time {
	all := map[string]time.Time{}
	for id, s := range l.heard {
		after := AfterOf(id)
		if l.since.IsZero() || after == 0 {
			continue
		}
		at := s.at
		if at.Before(l.since) {
			at = l.since
		}
		if p := ProcessOf(id); at.Add(after).After(all[p]) {
			all[p] = at.Add(after)
		}
	}
	return all
}

// Dead returns the processes all of whose workers had been silent for so long, at the last look, that others may take their runs:
// each of them goes by what it says itself. A process that has not been heard of is not dead.
func (l *Life) Dead() (processes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, at := range l.dies() {
		if !at.After(l.looked) {
			processes = append(processes, p)
		}
	}
	slices.Sort(processes)
	return processes
}

// Signs returns the workers of a process that have been heard of, each with its last sign of life (ms).
func (l *Life) Signs(process string) Signs {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := Signs{}
	for id, s := range l.heard {
		if ProcessOf(id) == process {
			all[id] = s.clock
		}
	}
	return all
}

// Signs are the last signs of life of workers (ms), by their IDs.
type Signs map[string]int64

// Next returns when the next process would be dead; zero if there is none.
func (l *Life) Next() (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.dies() {
		if at.After(l.looked) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
