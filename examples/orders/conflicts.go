package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// ending says how a wait ended.
type ending string

const (
	endedRunning   ending = "then ran"
	endedElsewhere ending = "then waited for another key"
	endedRefused   ending = "then was archived"
	endedWaiting   ending = "still waiting at the end"
)

// wait is the time that a task waited for one key, over all of its runs.
type wait struct {
	TaskID, Type string
	Began, Ended time.Time
	Refusals     int
	Ending       ending
}

// outcomes counts how conflicts ended. A task that is parked several times counts several times.
type outcomes struct {
	InSlot   int // got the key in the same run
	Parked   int
	FailFast int // archived at once
	Bound    int // archived at a bound of its waiting
}

// conflicts is the observer of all workers of this process. The report and the timeline take their data on waiting from it. It
// is safe for concurrent use.
type conflicts struct {
	mu       sync.Mutex
	first    map[string]time.Time // of a task's refusals since it last ran
	open     map[string]openWait  // by task
	waits    map[string][]wait    // by key, those that have ended
	refusals map[string]int       // by key
	durations
	outcomes
	archived func() // called, without the lock, when a task is about to be archived
}

type openWait struct {
	wait
	key string
}

// durations is how long tasks waited from their first conflict to their start.
type durations []time.Duration

// percentile returns the p-th percentile, 0 to 100, by nearest rank; 0 if there are no durations.
func (d durations) percentile(p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

func newConflicts(archived func()) *conflicts {
	return &conflicts{
		first: map[string]time.Time{}, open: map[string]openWait{}, waits: map[string][]wait{},
		refusals: map[string]int{}, archived: archived,
	}
}

// Observe takes in what the middleware tells of a task.
func (c *conflicts) Observe(_ context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.Refused:
		c.refused(e)
	case middleware.Acquired:
		c.acquired(e)
	case middleware.Ended:
		if c.ended(e) {
			c.archived()
		}
	default: // the others are not about waiting
	}
}

func (c *conflicts) refused(e middleware.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusedAt(e)
}

// refusedAt notes a refusal. The caller holds the mutex.
func (c *conflicts) refusedAt(e middleware.Event) {
	id := e.Task.ID
	c.refusals[e.Key]++
	if _, ok := c.first[id]; !ok {
		c.first[id] = e.At
	}
	open, ok := c.open[id]
	if ok && open.key != e.Key {
		c.closeWait(id, e.At, endedElsewhere)
		ok = false
	}
	if !ok {
		open = openWait{wait: wait{TaskID: id, Type: e.Type, Began: e.At}, key: e.Key}
	}
	open.Refusals++
	c.open[id] = open
}

func (c *conflicts) acquired(e middleware.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := e.Task.ID
	if e.Waited > 0 {
		c.InSlot++
	}
	if first, ok := c.first[id]; ok {
		c.durations = append(c.durations, e.At.Sub(first))
		delete(c.first, id)
	}
	c.closeWait(id, e.At, endedRunning)
}

// ended counts the outcome and reports whether the task goes to the archive.
func (c *conflicts) ended(e middleware.Event) (archived bool) {
	err, ok := errors.AsType[*middleware.ConflictError](e.Err)
	if !ok {
		_, stopped := errors.AsType[*middleware.CancelledError](e.Err)
		return stopped
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err.Outcome == middleware.Park:
		c.Parked++
		if err.Conflicts > 1 { // there is one Refused event per wait
			c.refusedAt(e)
		}
	case err.Limit != delayqueue.NoLimit:
		c.Bound++
		archived = true
	default:
		c.FailFast++
		archived = true
	}
	if archived {
		delete(c.first, e.Task.ID)
		c.closeWait(e.Task.ID, e.At, endedRefused)
	}
	return archived
}

// closeWait ends the wait of a task, if it waits. The caller holds the mutex.
func (c *conflicts) closeWait(id string, at time.Time, how ending) {
	open, ok := c.open[id]
	if !ok {
		return
	}
	delete(c.open, id)
	open.Ended, open.Ending = at, how
	c.waits[open.key] = append(c.waits[open.key], open.wait)
}

// met is what a conflicts has seen so far.
type met struct {
	outcomes
	Durations durations
	Refusals  map[string]int    // by key
	Waits     map[string][]wait // by key; those that go on end now
}

func (c *conflicts) met(now time.Time) met {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := met{
		outcomes: c.outcomes, Durations: slices.Clone(c.durations),
		Refusals: maps.Clone(c.refusals), Waits: make(map[string][]wait, len(c.waits)),
	}
	for key, list := range c.waits {
		m.Waits[key] = slices.Clone(list)
	}
	for _, open := range c.open {
		open.Ended, open.Ending = now, endedWaiting
		m.Waits[open.key] = append(m.Waits[open.key], open.wait)
	}
	return m
}
