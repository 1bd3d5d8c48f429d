package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// mutant is one small change of a source file that a test should notice.
type mutant struct {
	ID       int    // from 1, in the order of the sources
	File     string // relative to the root of the repository
	Line     int
	Func     string // the function that it is in; empty outside of one
	Operator string // the kind of change
	Before   string // what stands there
	After    string // what stands there instead
	Text     string // the whole line, without its indentation
}

// change returns the change in one line.
func (m *mutant) change() string { return m.Before + " => " + m.After }

// String returns where the mutant is and what it changes.
func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s", m.File, m.Line, m.Operator, m.change())
}

// short returns a piece of source in one line, cut off if it is long.
func short(source string) string {
	text := strings.Join(strings.Fields(source), " ")
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// sample returns n of the mutants, or all if n is 0 or there are fewer. The same seed chooses the same ones. Each file and
// operator has its share of them.
func sample(all []*mutant, n int, seed uint64) []*mutant {
	if n <= 0 || n >= len(all) {
		return all
	}
	random := rand.New(rand.NewPCG(seed, 0))
	strata := map[string][]*mutant{}
	var names []string
	for _, m := range all {
		name := m.File + " " + m.Operator
		if strata[name] == nil {
			names = append(names, name)
		}
		strata[name] = append(strata[name], m)
	}
	// A stratum's mutants are spread evenly over [0, 1), in random order. Those with the smallest places are chosen.
	place := map[*mutant]float64{}
	for _, name := range names {
		stratum := strata[name]
		random.Shuffle(len(stratum), func(i, j int) { stratum[i], stratum[j] = stratum[j], stratum[i] })
		offset := random.Float64()
		for i, m := range stratum {
			place[m] = (float64(i) + offset) / float64(len(stratum))
		}
	}
	chosen := slices.Clone(all)
	slices.SortStableFunc(chosen, func(a, b *mutant) int {
		switch {
		case place[a] < place[b]:
			return -1
		case place[a] > place[b]:
			return 1
		}
		return a.ID - b.ID
	})
	chosen = chosen[:n]
	slices.SortFunc(chosen, func(a, b *mutant) int { return a.ID - b.ID })
	return chosen
}
