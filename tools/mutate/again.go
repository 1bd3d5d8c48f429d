package main

import (
	"fmt"
	"path/filepath"
	"slices"
)

// recorded returns what the last trial has shown of a target.
func recorded(root, name string) (summary, error) {
	all, err := readResults(filepath.Join(root, resultsPath))
	if err != nil {
		return summary{}, err
	}
	if i := slices.IndexFunc(all, func(s summary) bool { return s.Target == name }); i >= 0 {
		return all[i], nil
	}
	return summary{}, fmt.Errorf("%s has not been tried yet", name)
}

// survived returns those mutants that have survived. One whose line has changed since is not among them.
func (s summary) survived(all []*mutant) []*mutant {
	left := slices.Clone(all)
	var found []*mutant
	for _, one := range s.Survivors {
		i := slices.IndexFunc(left, func(m *mutant) bool {
			return m.File == one.File && m.Operator == one.Operator && m.change() == one.Change && m.Text == one.Line
		})
		if i >= 0 {
			found = append(found, left[i])
			left = slices.Delete(left, i, i+1)
		}
	}
	return found
}

// after returns the summary with what a trial of its survivors has shown since.
func (s summary) after(again summary) summary {
	gone := len(s.Survivors) - again.Tried
	again.Seed, again.Killed, again.TimedOut = s.Seed, s.Killed+again.Killed, s.TimedOut+again.TimedOut
	again.Tried = s.Tried - gone
	again.Confirmed = s.Confirmed || s.TimedOut == 0
	return again
}
