package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestASampleHasItsShareOfEachKind(t *testing.T) {
	t.Parallel()
	var all []*mutant
	for i := range 200 {
		m := &mutant{ID: i + 1, File: "many.go", Operator: "constant"}
		if i%10 == 0 {
			m.File = fmt.Sprintf("few%d.go", i%20)
		}
		all = append(all, m)
	}
	first, again, other := sample(all, 50, 1), sample(all, 50, 1), sample(all, 50, 2)
	if !slices.Equal(first, again) {
		t.Error("the same seed has chosen others")
	}
	if slices.Equal(first, other) {
		t.Error("another seed has chosen the same ones")
	}
	files := map[string]int{}
	for _, m := range first {
		files[m.File]++
	}
	if len(first) != 50 || files["few0.go"] < 2 || files["few0.go"] > 3 || files["few10.go"] < 2 || files["few10.go"] > 3 {
		t.Errorf("%d chosen: %v", len(first), files)
	}
	if got := sample(all, 0, 1); len(got) != len(all) {
		t.Errorf("%d of all", len(got))
	}
}

func TestKillsByTimeCountOnceTheyAreConfirmed(t *testing.T) {
	t.Parallel()
	for confirmed, want := range map[bool]string{
		true:  "| x | 20 | 10 | 8 | 4 | 0 | 2 | 80.0 % |",
		false: "| x | 20 | 10 | 8 | 4 | 0 | 2 | ≥ 40.0 % |",
	} {
		if got := (summary{Target: "x", Mutants: 20, Tried: 10, Killed: 8, TimedOut: 4, Confirmed: confirmed}).row(); got != want {
			t.Errorf("confirmed %t: %s", confirmed, got)
		}
	}
}
