package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files that the report is made of and written to, in the repository.
const (
	acceptedPath = "docs/mutation/accepted.json"
	resultsPath  = "docs/mutation/results.json"
	pagePath     = "docs/mutation.md"
)

// accepted is a survivor that has a reason.
type accepted struct {
	File   string `json:"file"`
	Line   string `json:"line"`   // its text: the number changes too often
	Change string `json:"change"` // as mutant.change has it
	Reason string `json:"reason"` // begins with the class and a colon: "equivalent:", "cost:" or "untested:"
}

// equivalent reports whether the mutant does the same as the original, for all that a user can see.
func (a accepted) equivalent() bool { return strings.HasPrefix(a.Reason, "equivalent:") }

// reasonFor returns the reason for which a mutant may survive; "" if none is known.
func reasonFor(m *mutant, known []accepted) string {
	for _, a := range known {
		if a.File == m.File && a.Line == m.Text && a.Change == m.change() {
			return a.Reason
		}
	}
	return ""
}

func readAccepted(path string) ([]accepted, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []accepted
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, a := range all {
		class, reason, ok := strings.Cut(a.Reason, ": ")
		if !ok || reason == "" || !slices.Contains([]string{"equivalent", "cost", "untested"}, class) {
			return nil, fmt.Errorf("%s: the reason for %q is %q: it begins with equivalent, cost or untested", path, a.Change, a.Reason)
		}
	}
	return all, nil
}

// summary is what a trial has shown of a target.
type summary struct {
	Target     string     `json:"target"`
	Mutants    int        `json:"mutants"` // that there are
	Tried      int        `json:"tried"`
	Seed       uint64     `json:"seed"`
	Killed     int        `json:"killed"` // with those that timed out
	TimedOut   int        `json:"timedOut"`
	Confirmed  bool       `json:"confirmed"` // the same tests ended in time without the mutant
	Equivalent int        `json:"equivalent"`
	Survivors  []survivor `json:"survivors"`
}

// survivor is a mutant that no test has killed.
type survivor struct {
	File, Func, Operator, Change, Line, Outcome string
	Reason                                      string `json:",omitempty"`
}

// summarize counts the results of a trial.
func summarize(name string, all int, seed uint64, results []result, known []accepted) summary {
	s := summary{Target: name, Mutants: all, Tried: len(results), Seed: seed, Confirmed: true}
	for _, r := range results {
		switch r.outcome {
		case timedOut:
			s.TimedOut++
			s.Killed++
		case killed:
			s.Killed++
		default:
			one := survivor{
				File: r.mutant.File, Func: r.mutant.Func, Operator: r.mutant.Operator, Change: r.mutant.change(), Line: r.mutant.Text,
				Outcome: string(r.outcome),
			}
			s.Survivors = append(s.Survivors, one)
		}
	}
	return s.explained(known)
}

// explained returns the summary with the reasons for what has survived.
func (s summary) explained(known []accepted) summary {
	s.Equivalent, s.Survivors = 0, slices.Clone(s.Survivors)
	for i := range s.Survivors {
		one := &s.Survivors[i]
		one.Reason = ""
		for _, a := range known {
			if a.File == one.File && a.Line == one.Line && a.Change == one.Change {
				one.Reason = a.Reason
				if a.equivalent() {
					s.Equivalent++
				}
				break
			}
		}
	}
	return s
}

// share returns the share of killed mutants, of those that are not equivalent, in percent. Kills by time that were not confirmed do not
// count: the machine may have been busy.
func (s summary) share() float64 {
	killed := s.Killed
	if !s.Confirmed {
		killed -= s.TimedOut
	}
	if s.Tried == s.Equivalent {
		return 100
	}
	return 100 * float64(killed) / float64(s.Tried-s.Equivalent)
}

// row returns the line of the table.
func (s summary) row() string {
	least := ""
	if !s.Confirmed && s.TimedOut > 0 {
		least = "≥ "
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %s%.1f %% |",
		s.Target, s.Mutants, s.Tried, s.Killed, s.TimedOut, s.Equivalent, s.Tried-s.Killed-s.Equivalent, least, s.share())
}

// record adds a summary to the results, in the place of an earlier one, and writes the page.
func record(root string, s summary, known []accepted) error {
	all, err := readResults(filepath.Join(root, resultsPath))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(o summary) bool { return o.Target == s.Target })
	return write(root, append(all, s), known)
}

// write writes the results and the page, with the reasons that are known now.
func write(root string, all []summary, known []accepted) error {
	slices.SortFunc(all, func(a, b summary) int { return place(a.Target) - place(b.Target) })
	for i := range all {
		all[i] = all[i].explained(known)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, resultsPath), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pagePath), []byte(page(all)), 0o644)
}

func readResults(path string) (all []summary, _ error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// place returns the position of a target in the list.
func place(name string) int {
	return slices.IndexFunc(targets, func(t target) bool { return t.name == name })
}
