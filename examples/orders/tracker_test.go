package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestTrackerCountsOverlapsPerKey(t *testing.T) {
	t.Parallel()
	tr := newTracker()
	leaveA := tr.enter("a", auditType, []string{"order:1"})
	leaveB := tr.enter("b", allocateType, []string{"order:1", "seller:1"}) // meets a
	leaveC := tr.enter("c", allocateType, []string{"order:2", "seller:1"}) // meets b
	leaveA()
	leaveB()
	leaveC()
	tr.enter("d", auditType, []string{"order:1"})() // alone

	seen := tr.seen()
	if seen.Runs != 4 || seen.Overlaps != 2 {
		t.Errorf("%d runs and %d overlaps, want 4 and 2", seen.Runs, seen.Overlaps)
	}
	for key, want := range map[string]string{
		"order:1": "a:false b:true d:false ", "order:2": "c:false ", "seller:1": "b:false c:true ",
	} {
		var got strings.Builder
		for _, h := range seen.Holds[key] {
			fmt.Fprintf(&got, "%s:%t ", h.TaskID, h.Overlap)
			if h.Ended.Before(h.Began) {
				t.Errorf("%+v ends before it begins", h)
			}
		}
		if got.String() != want {
			t.Errorf("holds of %s: %s, want %s", key, got.String(), want)
		}
	}
}

func TestTrackerCountsNothingUnderAMutex(t *testing.T) {
	t.Parallel()
	tr := newTracker()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			tr.enter("t", auditType, []string{"k", "l"})()
		})
	}
	all.Wait()
	if seen := tr.seen(); seen.Overlaps != 0 || len(seen.Holds["k"]) != 50 {
		t.Errorf("%d overlaps in %d holds", seen.Overlaps, len(seen.Holds["k"]))
	}
}
