package main

import (
	"cmp"
	"slices"
	"strings"
)

// edit replaces the bytes from start to end of a source. An insertion has start == end; from and to are then the piece that it
// opens or closes.
type edit struct {
	start, end int
	text       string
	closes     bool
	from, to   int
	depth      int // of the node that asked for it
}

// edits collects the changes of one source. They may be nested, but must not overlap.
type edits []edit

// wrap puts text before and after the piece from start to end, for a node of some depth.
func (e *edits) wrap(depth, start, end int, before, after string) {
	*e = append(*e,
		edit{start: start, end: start, text: before, from: start, to: end, depth: depth},
		edit{start: end, end: end, text: after, closes: true, from: start, to: end, depth: depth})
}

// replace puts text in the place of the piece from start to end.
func (e *edits) replace(start, end int, text string) {
	*e = append(*e, edit{start: start, end: end, text: text, from: start, to: end})
}

// apply returns the source with all edits. Of insertions at one place, those that close a piece come first, the innermost before
// the others; those that open one follow, the outermost first. Of two around the same piece, that of the outer node is the outer one,
// and of one node the later one.
func (e *edits) apply(source string) string {
	type numbered struct {
		edit
		n int
	}
	all := make([]numbered, len(*e))
	for i, one := range *e {
		all[i] = numbered{one, i}
	}
	slices.SortFunc(all, func(a, b numbered) int {
		switch {
		case a.start != b.start:
			return a.start - b.start
		case a.closes != b.closes:
			if a.closes {
				return -1
			}
			return 1
		case a.closes:
			return cmp.Or(b.from-a.from, b.depth-a.depth, a.n-b.n)
		case (a.end > a.start) != (b.end > b.start): // a replacement follows the insertions before it
			if a.end > a.start {
				return 1
			}
			return -1
		default:
			return cmp.Or(b.to-a.to, a.depth-b.depth, b.n-a.n)
		}
	})
	var out strings.Builder
	at := 0
	for _, one := range all {
		out.WriteString(source[at:one.start])
		out.WriteString(one.text)
		at = one.end
	}
	out.WriteString(source[at:])
	return out.String()
}
