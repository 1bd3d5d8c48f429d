package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// waited is how long a task waited for one key, in milliseconds.
type waited struct {
	Key  string  `json:"key"`
	Time float64 `json:"time"`
}

// waitsByTask returns what each task waited for and how long, in the order of the keys' names.
func waitsByTask(waits map[string][]wait, id runID) map[string][]waited {
	tasks := map[string][]waited{}
	for _, key := range slices.Sorted(maps.Keys(waits)) {
		sum := map[string]float64{}
		for _, w := range waits[key] {
			sum[w.TaskID] += sinceMS(w.Began, w.Ended)
		}
		for task, time := range sum {
			tasks[task] = append(tasks[task], waited{id.business(key), time})
		}
	}
	return tasks
}

// holders returns the tasks that held a key during a wait.
func holders(holds []bar, w bar) []string {
	var tasks []string
	for _, h := range holds {
		if h.Task != w.Task && h.Began < w.Ended && h.Ended > w.Began {
			tasks = append(tasks, h.Task)
		}
	}
	return tasks
}

// longestWaits returns the n longest waits for the keys of some lanes, the longest first.
func longestWaits(lanes []lane, n int) []bar {
	var waits []bar
	for _, l := range lanes {
		waits = append(waits, l.Waits...)
	}
	slices.SortStableFunc(waits, func(a, b bar) int { return cmp.Compare(b.Ended-b.Began, a.Ended-a.Began) })
	return waits[:min(n, len(waits))]
}

// Length returns how long a bar is, for the page.
func (b bar) Length() string { return fmt.Sprintf("%.1f ms", b.Ended-b.Began) }

// shownHolders is how many holders of a key the page names.
const shownHolders = 3

// HeldBy names the first tasks that held the key during a wait, for the page.
func (b bar) HeldBy() string {
	names := strings.Join(b.Holders[:min(shownHolders, len(b.Holders))], ", ")
	if more := len(b.Holders) - shownHolders; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}
