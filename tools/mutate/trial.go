package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// trial is a run of one target.
type trial struct {
	root    string
	scratch string // a folder for what it writes
	target  target
	options

	known   []accepted
	all     []*mutant // every mutant that there is
	overlay map[string]string
	env     func(*mutant) ([]string, error) // switches a mutant on
}

// result is what a trial says of one mutant.
type result struct {
	mutant  *mutant
	outcome outcome
}

// prepare makes the mutants.
func (t *trial) prepare(ctx context.Context) error {
	if t.target.lua {
		return t.prepareLua()
	}
	p, err := loadPackage(ctx, t.root, t.target.folders[0])
	if err != nil {
		return err
	}
	dropped := map[string]bool{}
	for range 10 {
		made, err := mutateGo(p, t.root, t.target.uses, dropped)
		if err != nil {
			return err
		}
		t.all, t.overlay = made.mutants, made.overlay
		t.env = func(m *mutant) ([]string, error) { return []string{"MUTANT=" + itoa(m.ID)}, nil }
		overlay, err := writeOverlay(t.scratch, t.overlay)
		if err != nil {
			return err
		}
		_, out, err := compileSuite(ctx, t.root, t.target.tests[0], overlay, filepath.Join(t.scratch, "0.test"), t.short)
		if err == nil {
			return nil
		}
		more := compileErrors(p.dir, out)
		if len(more) == 0 {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for _, line := range more {
			fmt.Fprintf(os.Stderr, "no mutants in a line that they keep from compiling: %s\n", line)
			dropped[line] = true
		}
	}
	return fmt.Errorf("%s does not compile with its mutants", t.target.name)
}

var compileError = regexp.MustCompile(`(?m)^([^\s:]+\.go:\d+):\d+: .*$`)

// compileErrors returns the lines, "path:line", of the compiler's errors in the files of a folder, whose changed copies they name.
func compileErrors(dir string, out []byte) []string {
	var lines []string
	for _, found := range compileError.FindAllSubmatch(out, -1) {
		if !strings.Contains(string(found[0]), "too many errors") {
			lines = append(lines, filepath.Join(dir, filepath.Base(string(found[1]))))
		}
	}
	return lines
}

// run tries mutants by one suite after another, the next on what survives without a known reason; again, no suite is tried on one that
// has a reason. The tests of other packages are run without the long ones.
func (t *trial) run(ctx context.Context, mutants []*mutant) ([]result, error) {
	overlay, err := writeOverlay(t.scratch, t.overlay)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(mutants))
	for i, m := range mutants {
		results[i] = result{m, unreached}
		if reasonFor(m, t.known) != "" {
			results[i].outcome = alive
		}
	}
	for i, folder := range t.target.tests {
		left := survivors(results)
		if i > 0 || t.again {
			left = slices.DeleteFunc(left, func(r *result) bool { return reasonFor(r.mutant, t.known) != "" })
		}
		if len(left) == 0 || t.suites > 0 && i == t.suites {
			break
		}
		s, out, err := compileSuite(ctx, t.root, folder, overlay, filepath.Join(t.scratch, itoa(i)+".test"), t.short || i > 0)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		s.patience = t.patience
		if t.target.lua {
			if err := s.link(ctx, t.scratch); err != nil {
				return nil, err
			}
			left = slices.DeleteFunc(left, func(r *result) bool { return !slices.Contains(s.linked, r.mutant.File) })
		}
		if len(left) == 0 {
			continue
		}
		if err := s.measure(ctx, t.scratch, !t.target.lua); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s: %d mutants, %d tests of %s\n", t.target.name, len(left), len(s.tests), folder)
		for n, r := range left {
			if n%50 == 49 {
				fmt.Fprintf(os.Stderr, "%s: %d of %d\n", t.target.name, n+1, len(left))
			}
			env, err := t.env(r.mutant)
			if err != nil {
				return nil, err
			}
			if outcome := s.try(ctx, r.mutant.ID, env); outcome != unreached {
				r.outcome = outcome
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if r.outcome == alive || r.outcome == unreached {
				fmt.Fprintf(os.Stderr, "%s: %s\n", r.outcome, r.mutant)
			}
		}
		if err := os.Remove(s.binary); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// survivors returns those results that no test has changed yet.
func survivors(results []result) []*result {
	var left []*result
	for i := range results {
		if r := &results[i]; r.outcome == alive || r.outcome == unreached {
			left = append(left, r)
		}
	}
	return left
}
