package quorum_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/quorum"
)

// feed gives answers in the order of the letters: g granted, f failed, . none yet, any other letter held by that owner.
func feed(answers string) *quorum.Acquisition {
	a := quorum.New(len(answers))
	for i, what := range answers {
		tell(a, i, what, 7)
	}
	return a
}

func tell(a *quorum.Acquisition, i int, what rune, top int64) {
	switch what {
	case '.':
	case 'g':
		a.Granted(i, []int64{top})
	case 'f':
		a.Failed(i)
	default:
		a.Held(i, string(what))
	}
}

func TestQuorumIsMoreThanHalf(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		if got := quorum.Of(nodes); got != want {
			t.Errorf("of %d: %d, want %d", nodes, got, want)
		}
	}
}

func TestVerdictComesAsSoonAsItIsCertain(t *testing.T) {
	t.Parallel()
	for answers, want := range map[string]quorum.Verdict{
		".":       quorum.Undecided,
		"g":       quorum.Won,
		"a":       quorum.Held,
		"f":       quorum.Unreachable,
		"gg.":     quorum.Won,
		"g..":     quorum.Undecided,
		"g.a":     quorum.Undecided,
		"aa.":     quorum.Held,
		"ga.":     quorum.Undecided,
		"gaa":     quorum.Held, // two of three are a's
		"gab":     quorum.Split,
		"gfa":     quorum.Split,
		"gff":     quorum.Unreachable,
		"ff.":     quorum.Unreachable,
		"fa.":     quorum.Undecided, // a may have the third, or no owner can have two
		"ffa..":   quorum.Undecided,
		"fffa.":   quorum.Unreachable,
		"faf":     quorum.Unreachable,
		"faa":     quorum.Held,
		"ggg..":   quorum.Won,
		"gg.aa":   quorum.Undecided,
		"aaa..":   quorum.Held,
		"aab..":   quorum.Split,
		"gaaa.":   quorum.Held,
		"ggaab":   quorum.Split,
		"gfff.":   quorum.Unreachable,
		"aaf..":   quorum.Undecided,
		"aaf.f":   quorum.Undecided,
		"aafa.":   quorum.Held,
		"aafff":   quorum.Unreachable,
		"g.g.":    quorum.Undecided, // half is not enough
		"gg.a":    quorum.Undecided,
		"ggaa":    quorum.Split,
		"...fff.": quorum.Undecided,
		"..ffff.": quorum.Unreachable,
	} {
		if got := feed(answers).Verdict(); got != want {
			t.Errorf("%s: %v, want %v", answers, got, want)
		}
	}
}

func TestLateAnswerCorrectsTimeout(t *testing.T) {
	t.Parallel()
	a := feed("gff")
	if a.Verdict() != quorum.Unreachable {
		t.Fatal(a.Verdict())
	}
	a.Granted(1, []int64{7})
	if a.Verdict() != quorum.Unreachable {
		t.Errorf("the verdict has become %v", a.Verdict())
	}
	if a.Counters(1) == nil {
		t.Error("the grant is not noted, so it would never be released")
	}

	a = feed("gf.")
	a.Granted(1, []int64{7})
	if a.Verdict() != quorum.Won {
		t.Errorf("%v after a late grant", a.Verdict())
	}
	a = feed("gf.")
	a.Held(1, "b")
	a.Held(2, "b")
	if a.Verdict() != quorum.Held {
		t.Errorf("%v after a late refusal", a.Verdict())
	}
}

func TestAnswerIsNotTakenBack(t *testing.T) {
	t.Parallel()
	a := feed("g..")
	a.Failed(0)
	a.Held(0, "b")
	a.Granted(0, []int64{9})
	if a.Counters(0)[0] != 7 {
		t.Errorf("counter %d", a.Counters(0))
	}
	a.Held(1, "b")
	a.Granted(1, []int64{9})
	if a.Counters(1) != nil || !a.Elsewhere(1) {
		t.Error("a refusal has become a grant")
	}
	if a.Silent(0) || a.Silent(1) || !a.Silent(2) {
		t.Error("the wrong nodes are silent")
	}
}

func TestVerdictIsRightAndFinal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 7).Draw(t, "nodes")
		a := quorum.New(nodes)
		last, final := make([]rune, nodes), quorum.Undecided
		for i := range last {
			last[i] = '.'
		}
		for range rapid.IntRange(0, 3*nodes).Draw(t, "answers") {
			i := rapid.IntRange(0, nodes-1).Draw(t, "node")
			what := rapid.SampledFrom([]rune("ggfab")).Draw(t, "answer")
			tell(a, i, what, 7)
			if last[i] == '.' || last[i] == 'f' {
				last[i] = what
			}
			n := map[rune]int{}
			for _, l := range last {
				n[l]++
			}
			yes, silent, spare := n['g'], n['.'], nodes-quorum.Of(nodes)
			can, must := yes+silent >= quorum.Of(nodes), yes >= quorum.Of(nodes)
			// Those that are silent decide whether anybody can have a quorum.
			open := n['f'] > 0 && n['f'] <= spare && n['f']+silent > spare && max(n['a'], n['b']) < quorum.Of(nodes)
			got := a.Verdict()
			switch {
			case final != quorum.Undecided:
				if got != final {
					t.Fatalf("%s: %v has become %v", string(last), final, got)
				}
			case must != (got == quorum.Won), (can || open) == (got > quorum.Won):
				t.Fatalf("%s: %v", string(last), got)
			case got > quorum.Won && (n['f'] > spare) != (got == quorum.Unreachable):
				t.Fatalf("%s: %v", string(last), got)
			}
			final = got
		}
	})
}

func TestEarlyVerdictIsThatOfAllAnswers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		answers := rapid.StringOfN(rapid.RuneFrom([]rune("ggfab")), 1, 7, -1).Draw(t, "answers")
		order := rapid.Permutation(indices(len(answers))).Draw(t, "order")
		a, granted := quorum.New(len(answers)), 0
		for _, what := range answers {
			if what == 'g' {
				granted++
			}
		}
		for _, i := range order {
			tell(a, i, rune(answers[i]), 7)
			if v := a.Verdict(); v != quorum.Undecided && (v == quorum.Won) != (granted >= quorum.Of(len(answers))) {
				t.Fatalf("%v, but %d of %d grant", v, granted, len(answers))
			}
		}
		if a.Verdict() == quorum.Undecided {
			t.Fatal("undecided when all have answered")
		}
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestVerdictsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for v := quorum.Undecided; v <= quorum.Unreachable; v++ {
		seen[v.String()] = true
	}
	for o := quorum.Open; o <= quorum.Unknown; o++ {
		seen[o.String()] = true
	}
	if len(seen) != 9 {
		t.Errorf("%v", seen)
	}
}
