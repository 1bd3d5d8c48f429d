package holdings

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Point is what happened in a minute: to all keys together, or to one of them.
type Point struct {
	Waiting int           // parked tasks, at most
	Oldest  time.Duration // the longest wait of one of them
	// Holds is how often keys were taken; -1 if that was not counted.
	Holds           int
	Wakes, Refusals int
}

// mostTallied is how many keys a worker counts for between two reports.
const mostTallied = 1000

// tally counts what happens between two reports: to all keys together, and to each key for which a task waits or has waited. Other
// keys cost nothing.
type tally struct {
	all  Point
	keys map[string]*Point
	left bool // there were more keys
}

// of returns what is counted for a key, or nil if there is no room.
func (t *tally) of(key string) *Point {
	p := t.keys[key]
	if p != nil {
		return p
	}
	if len(t.keys) >= mostTallied {
		t.left = true
		return nil
	}
	if t.keys == nil {
		t.keys = map[string]*Point{}
	}
	p = &Point{}
	t.keys[key] = p
	return p
}

func (t *tally) refused(key string) {
	t.all.Refusals++
	if p := t.of(key); p != nil {
		p.Refusals++
	}
}

func (t *tally) woke(key string, tasks int) {
	t.all.Wakes += tasks
	if p := t.of(key); p != nil {
		p.Wakes += tasks
	}
}

func (t *tally) held(h *Holding) {
	t.all.Holds += len(h.Keys)
	if !h.Waited && len(t.keys) == 0 {
		return
	}
	for _, key := range h.Keys {
		p := t.keys[key]
		if p == nil && h.Waited {
			p = t.of(key)
		}
		if p != nil {
			p.Holds++
		}
	}
}

// wanted returns the n keys to which most has happened.
func (t *tally) wanted(n int) []string {
	keys := slices.SortedFunc(maps.Keys(t.keys), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.keys[b].events(), t.keys[a].events()), cmp.Compare(a, b))
	})
	return keys[:min(n, len(keys))]
}

func (p Point) events() int { return p.Holds + p.Wakes + p.Refusals }
