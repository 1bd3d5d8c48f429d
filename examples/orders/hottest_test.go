package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestHottestSortsByConflictsThenWaits(t *testing.T) {
	t.Parallel()
	r := &report{
		Seen: seen{Holds: map[string][]hold{"a": {{}}, "b": {{}}, "c": {{}, {}}, "d": {{}}, "e": {{Overlap: true}, {Overlap: true}, {Overlap: true}}}},
		Met:  met{Refusals: map[string]int{"a": 1, "b": 1, "d": 2}, Waits: map[string][]wait{"b": {{Began: at(0), Ended: at(5)}}}},
	}
	if got := strings.Join(r.hottest(10), ""); got != "edbac" {
		t.Errorf("sorted %s, want edbac", got)
	}
	if got := r.hottest(2); len(got) != 2 {
		t.Errorf("the two hottest are %q", got)
	}
}

func TestHottestKeepsPlacesForOrders(t *testing.T) {
	t.Parallel()
	r := &report{Seen: seen{Holds: map[string][]hold{}}, Met: met{Refusals: map[string]int{}}}
	for i := range 30 {
		key := fmt.Sprintf("seller:%02d", i)
		r.Seen.Holds[key] = []hold{{Type: allocateType}}
		r.Met.Refusals[key] = 100 - i
		key = fmt.Sprintf("order:%02d", i)
		r.Seen.Holds[key] = []hold{{Type: allocateType}, {Type: auditType}}
		r.Met.Refusals[key] = 1
	}
	keys := r.hottest(20)
	if len(keys) != 20 || keys[14] != "seller:14" || keys[15] != "order:00" || !slices.Contains(keys, "order:04") {
		t.Errorf("the hottest keys are %q", keys)
	}
	for key := range r.Seen.Holds {
		if strings.HasPrefix(key, "order:") && key != "order:07" {
			r.Met.Refusals[key] = 0
		}
	}
	if keys := r.hottest(20); len(keys) != 20 || keys[18] != "seller:18" || keys[19] != "order:07" {
		t.Errorf("with one order in conflict the hottest keys are %q", keys)
	}
}
