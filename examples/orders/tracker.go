package main

import (
	"slices"
	"sync"
	"time"
)

// hold is one run of a handler, for one of its keys.
type hold struct {
	TaskID, Type string
	Began, Ended time.Time
	// Overlap says that another task of this process worked on the key when this one began.
	Overlap bool
}

// tracker watches the handlers of this process and counts how often one begins to work on a key while another does. It knows
// nothing about locks: if they work, it counts nothing. It is safe for concurrent use.
type tracker struct {
	mu       sync.Mutex
	working  map[string]int // by key
	holds    map[string][]hold
	overlaps int
	runs     int
}

func newTracker() *tracker {
	return &tracker{working: map[string]int{}, holds: map[string][]hold{}}
}

// enter records that a handler begins to work on some keys. The handler calls leave when it returns.
func (t *tracker) enter(taskID, taskType string, keys []string) (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := hold{TaskID: taskID, Type: taskType, Began: time.Now()}
	t.runs++
	overlap := make([]bool, len(keys))
	for i, key := range keys {
		if t.working[key] > 0 {
			overlap[i] = true
			t.overlaps++
		}
		t.working[key]++
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		h.Ended = time.Now()
		for i, key := range keys {
			t.working[key]--
			if t.working[key] == 0 {
				delete(t.working, key)
			}
			h.Overlap = overlap[i]
			t.holds[key] = append(t.holds[key], h)
		}
	}
}

// seen is what a tracker has seen so far.
type seen struct {
	Runs     int // of handlers
	Overlaps int
	Holds    map[string][]hold // by key, in the order in which they ended
}

func (t *tracker) seen() seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	holds := make(map[string][]hold, len(t.holds))
	for key, list := range t.holds {
		holds[key] = slices.Clone(list)
	}
	return seen{Runs: t.runs, Overlaps: t.overlaps, Holds: holds}
}
