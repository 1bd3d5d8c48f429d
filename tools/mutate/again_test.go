package main

import (
	"slices"
	"testing"
)

func TestATrialOfSurvivorsCompletesTheLastOne(t *testing.T) {
	t.Parallel()
	kept := &mutant{ID: 1, File: "a.go", Operator: "constant", Before: "1", After: "1 + 1", Text: "n := 1"}
	twice := []*mutant{
		{ID: 2, File: "a.go", Operator: "boundary", Before: "a < b", After: "a <= b", Text: "if a < b || a < b {"},
		{ID: 3, File: "a.go", Operator: "boundary", Before: "a < b", After: "a <= b", Text: "if a < b || a < b {"},
	}
	gone := &mutant{ID: 4, File: "a.go", Operator: "constant", Before: "2", After: "2 + 1", Text: "n := 2"}
	tried := []result{{kept, alive}, {twice[0], unreached}, {twice[1], alive}, {gone, alive}, {&mutant{ID: 5}, killed}, {&mutant{ID: 6}, timedOut}}
	first := summarize("a", 60, 7, tried, nil)
	all := []*mutant{kept, twice[0], twice[1], {ID: 7, File: "a.go", Text: "n := 3"}}
	if got := first.survived(all); !slices.Equal(got, all[:3]) {
		t.Fatalf("%v", got)
	}
	known := []accepted{{File: "a.go", Line: "n := 1", Change: kept.change(), Reason: "equivalent: one is two"}}
	second := first.after(summarize("a", 59, 1, []result{{kept, alive}, {twice[0], killed}, {twice[1], timedOut}}, known))
	if second.Mutants != 59 || second.Tried != 5 || second.Seed != 7 || second.Killed != 4 || second.TimedOut != 2 || second.Equivalent != 1 ||
		len(second.Survivors) != 1 || second.Survivors[0].Reason == "" || second.share() != 100 {
		t.Errorf("%+v", second)
	}
	first.Confirmed = false // nothing has shown since that the one that timed out ends without its mutant
	if third := first.after(second); third.Confirmed {
		t.Errorf("%+v", third)
	}
}
