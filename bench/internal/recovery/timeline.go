package recovery

import (
	"slices"
	"sync"
	"time"
)

const (
	// window is the time in which the rate must be normal.
	window = 200 * time.Millisecond
	// normal is the share of the rate before the fault that counts as normal.
	normal = 0.8
)

// timeline is the starts of tasks. It is safe for use by many goroutines at the same time.
type timeline struct {
	mu     sync.Mutex
	starts []time.Time
}

// note notes that a task has started now.
func (l *timeline) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, time.Now())
}

// seen returns the starts so far, in their order.
func (l *timeline) seen() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.starts)
}

// comeback is when tasks have run again: the first one, and as many as before.
type comeback struct{ first, normal time.Time }

// judge returns when tasks have run again after a fault, at this share of the rate before, and false until they have. before is how long the tasks ran before it.
// Only tasks that start once the service is back count: others were in memory.
func judge(starts []time.Time, share float64, before time.Duration, fault, back time.Time) (c comeback, ok bool) {
	earlier := 0
	for _, at := range starts {
		if !at.Before(fault.Add(-before)) && at.Before(fault) {
			earlier++
		}
	}
	want := share * float64(earlier) * window.Seconds() / before.Seconds()
	later := starts[since(starts, back):]
	for i, at := range later {
		n := since(later[i:], at.Add(window))
		if n == len(later)-i {
			return c, false // the window has not passed
		}
		if float64(n) >= want {
			return comeback{later[0], at}, true
		}
	}
	return c, false
}

// since returns how many starts come before a time.
func since(starts []time.Time, at time.Time) int {
	n, _ := slices.BinarySearchFunc(starts, at, time.Time.Compare)
	return n
}
