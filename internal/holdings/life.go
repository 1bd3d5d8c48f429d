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

// found notes a look that was sent and answered at these times, when the clock of Redis stood at clock (ms).
func (l *Life) found(sent, answered time.Time, clock int64, all []seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || sent.Sub(l.looked) > mostGap {
		l.since, l.looked, l.heard = answered, answered, map[string]sign{}
	}
	for _, s := range all {
		if last, ok := l.heard[s.ID]; ok && last.clock == s.Clock {
			continue
		}
		age := min(max(time.Duration(clock-s.Clock)*time.Millisecond, 0), answered.Sub(l.looked))
		l.heard[s.ID] = sign{s.Clock, answered.Add(-age)}
	}
	for id, s := range l.heard {
		if answered.Sub(s.at) > forgotten {
			delete(l.heard, id)
		}
	}
	l.looked = answered
}

// Living returns the processes of which a sign of life is younger than after, as of the last look. ok is false if this
// process has not looked for so long: then nobody may be taken for dead.
func (l *Life) Living(after time.Duration) (processes []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || l.looked.Sub(l.since) < after {
		return nil, false
	}
	for id, s := range l.heard {
		if p := ProcessOf(id); l.looked.Sub(s.at) < after && !slices.Contains(processes, p) {
			processes = append(processes, p)
		}
	}
	slices.Sort(processes)
	return processes, true
}

// Signs returns the workers of a process that have been heard of, each with its last sign of life (ms).
func (l *Life) Signs(process string) (all []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.heard {
		if ProcessOf(id) == process {
			all = append(all, id, s.clock)
		}
	}
	return all
}

// Next returns when the next process that lives would have been silent for so long; zero if there is none.
func (l *Life) Next(after time.Duration) (next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return time.Time{}
	}
	last := map[string]time.Time{}
	for id, s := range l.heard {
		at := s.at
		if at.Before(l.since) {
			at = l.since
		}
		if p := ProcessOf(id); at.After(last[p]) {
			last[p] = at
		}
	}
	for _, at := range last {
		if at = at.Add(after); at.After(l.looked) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
