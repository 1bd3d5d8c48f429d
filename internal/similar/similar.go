// Package similar finds the names that a mistyped name may stand for.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// mostBytes limits the names that are compared, because the time grows with their square.
const mostBytes = 200

// Nearest returns the name that differs least from a given one. There must be at least one.
func Nearest(to string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return Distance(to, a) - Distance(to, b) })
}

// Few returns at most n of the names that are like a given one, the most similar first: they differ in less than a
// third of their letters, or one contains the other, upper and lower case aside.
func Few(to string, names []string, n int) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	folded := strings.ToLower(to)
	for _, name := range names {
		if len(name) > mostBytes || len(to) > mostBytes || to == "" || name == to {
			continue
		}
		other := strings.ToLower(name)
		d := Distance(folded, other)
		if 3*d < max(len(to), len(name)) || strings.Contains(other, folded) || other != "" && strings.Contains(folded, other) {
			found = append(found, candidate{name, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(a.distance-b.distance, cmp.Compare(a.name, b.name))
	})
	few := make([]string, min(n, len(found)))
	for i := range few {
		few[i] = found[i].name
	}
	return few
}

// Distance returns the Levenshtein distance of two names, in bytes.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
