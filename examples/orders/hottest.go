package main

import (
	"cmp"
	"slices"
	"time"
)

// heat is how much tasks competed for a key.
type heat struct {
	key       string
	conflicts int // refusals; without locks, overlaps
	waited    time.Duration
	holds     int
	shared    bool // both types of tasks held it
}

// hottest returns at most n keys, those that tasks competed for most first. A quarter of them are keys that both types of tasks
// hold, if any of these had a conflict: a hot seller has many allocations, but only an order is audited too.
func (r *report) hottest(n int) []string {
	all := make([]heat, 0, len(r.Seen.Holds))
	for key := range r.Seen.Holds {
		all = append(all, r.heatOf(key))
	}
	slices.SortFunc(all, func(a, b heat) int {
		return cmp.Or(b.conflicts-a.conflicts, cmp.Compare(b.waited, a.waited), b.holds-a.holds, cmp.Compare(a.key, b.key))
	})
	fought := func(h heat) bool { return h.shared && h.conflicts > 0 }
	kept := 0 // places for the keys of both types
	for _, h := range all {
		if fought(h) && kept < n/4 {
			kept++
		}
	}
	keys := make([]string, 0, n)
	for _, h := range all {
		if fought(h) && kept > 0 {
			kept--
		} else if len(keys) >= n-kept {
			continue
		}
		keys = append(keys, h.key)
	}
	return keys
}

func (r *report) heatOf(key string) heat {
	h := heat{key: key, conflicts: r.Met.Refusals[key], holds: len(r.Seen.Holds[key])}
	types := map[string]bool{}
	for _, hold := range r.Seen.Holds[key] {
		types[hold.Type] = true
		if hold.Overlap {
			h.conflicts++
		}
	}
	for _, w := range r.Met.Waits[key] {
		h.waited += w.Ended.Sub(w.Began)
	}
	h.shared = len(types) > 1
	return h
}
