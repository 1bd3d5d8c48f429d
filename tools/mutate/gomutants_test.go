package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sums = "tools/mutate/testdata/sums"

// sumsTrial returns a trial of the package in testdata.
func sumsTrial(t *testing.T) *trial {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	one := &trial{root: root, scratch: t.TempDir(), options: options{patience: time.Minute}, target: target{name: "sums", folders: []string{sums}, tests: []string{sums}}}
	if err := one.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return one
}

func TestEachOperatorHasItsMutants(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range sumsTrial(t).all {
		got = append(got, m.Func+" "+m.Operator+": "+m.change())
	}
	for _, want := range []string{
		"Box.Add and for or: b.full || more <= 0 && b.n > 0 => b.full && more <= 0 && b.n > 0",
		"Box.Add and for or: more <= 0 && b.n > 0 => more <= 0 || b.n > 0",
		"Box.Add condition negated: b.full => !b.full",
		"Box.Add boundary: more <= 0 => more < 0",
		"Box.Add condition negated: more <= 0 => more > 0",
		"Box.Add constant: 0 => 0 + 1",
		"Box.Add error left out: errFull => nil",
		"Box.Add statement left out: return b.n, errFull => ",
		"Box.Add arithmetic: b.n+more => b.n - more",
		"Box.Add constant: most => most - 1",
		"Box.Add statement left out: b.full = true => ",
		"Box.Add constant: true => false",
		"Box.Add min for max: max(b.n, 1) => min(b.n, 1)",
		"Box.Wait constant: time.Minute => time.Minute / 2",
		"Box.Wait statement left out: break => ",
		"Box.Wait arithmetic: each*2 => each / 2",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no mutant %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

func TestLogsAndCapacitiesHaveNoMutants(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range sumsTrial(t).all {
		if m.Func == "Steps" {
			got = append(got, m.Operator+": "+m.change())
		}
	}
	want := []string{"constant: 0 => 0 + 1", `statement left out: log.Info("steps", "number", n+3, "odd", n == 5) => `}
	for _, change := range want {
		if !slices.Contains(got, change) {
			t.Errorf("no mutant %q", change)
		}
	}
	if len(got) != len(want)+1 { // that of append
		t.Error(strings.Join(got, "\n"))
	}
}

// To end what ends by itself frees memory a little earlier; any other end counts.
func TestWhatEndsByItselfHasNoMutants(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range sumsTrial(t).all {
		if strings.HasPrefix(m.Before, "defer ") {
			got = append(got, m.Before)
		}
	}
	if !slices.Equal(got, []string{"defer end()"}) {
		t.Errorf("left out are %v", got)
	}
}

func TestATrialTellsKilledFromAlive(t *testing.T) {
	t.Parallel()
	one := sumsTrial(t)
	results, err := one.run(context.WithoutCancel(t.Context()), one.all)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]outcome{}
	for _, r := range results {
		outcomes[r.mutant.Operator+": "+r.mutant.change()] = r.outcome
	}
	for change, want := range map[string]outcome{
		"arithmetic: b.n+more => b.n - more":               killed,
		"min for max: max(b.n, 1) => min(b.n, 1)":          killed,
		"arithmetic: b.since + each*2 => b.since - each*2": killed,
		"statement left out: b.full = true => ":            alive,     // no test adds to a full box
		"constant: most => most - 1":                       alive,     // none fills it to the brim
		"statement left out: break => ":                    unreached, // none waits for a minute
	} {
		if outcomes[change] != want {
			t.Errorf("%s: %q, want %q", change, outcomes[change], want)
		}
	}
}
