// Command mutate changes one small thing at a time in the sources of the repository, and reports which changes no test notices. It
// leaves the sources as they are: the changed ones are given to the compiler by an overlay.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	count := flag.Int("sample", 0, "how many mutants of each large target are tried; 0 for all")
	seed := flag.Uint64("seed", 1, "chooses the sample")
	short := flag.Bool("short", false, "leave out the tests that -short leaves out")
	suites := flag.Int("suites", 0, "the tests of how many packages are tried; 0 for all that the target has")
	patience := flag.Duration("patience", 45*time.Second, "how long the tests of a package may take that are tried on one mutant")
	again := flag.Bool("again", false, "try only what has survived the last trial")
	pageOnly := flag.Bool("page", false, "only write the page, with the reasons that are known now")
	list := flag.Bool("list", false, "only list the mutants")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *root, flag.Args(), options{
		count: *count, seed: *seed, short: *short, list: *list, again: *again, page: *pageOnly, suites: *suites, patience: *patience,
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	count       int
	seed        uint64
	short, list bool
	again, page bool
	suites      int
	patience    time.Duration
}

// run tries the targets with the given names, or all, and writes the report.
func run(ctx context.Context, root string, names []string, o options) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	known, err := readAccepted(filepath.Join(root, acceptedPath))
	if err != nil {
		return err
	}
	if o.page {
		all, err := readResults(filepath.Join(root, resultsPath))
		if err != nil {
			return err
		}
		return write(root, all, known)
	}
	for _, one := range chosen {
		if err := runTarget(ctx, root, one, known, o); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return nil
}

func runTarget(ctx context.Context, root string, one target, known []accepted, o options) (err error) {
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.RemoveAll(scratch); err == nil {
			err = gone
		}
	}()
	t := &trial{root: root, scratch: scratch, target: one, options: o, known: known}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if one.whole {
		o.count = 0
	}
	var before summary
	chosen := sample(t.all, o.count, o.seed)
	if o.again {
		if before, err = recorded(root, one.name); err != nil {
			return err
		}
		chosen = before.survived(t.all)
	}
	if o.list {
		for _, m := range chosen {
			fmt.Println(m)
		}
		fmt.Printf("%s: %d of %d mutants\n", one.name, len(chosen), len(t.all))
		return nil
	}
	results, err := t.run(ctx, chosen)
	if err != nil {
		return err
	}
	s := summarize(one.name, len(t.all), o.seed, results, known)
	if o.again {
		s = before.after(s)
	}
	fmt.Println(s.row())
	return record(root, s, known)
}

// choose returns the targets with the given names, or all.
func choose(names []string) ([]target, error) {
	if len(names) == 0 {
		return targets, nil
	}
	var chosen []target
	for _, name := range names {
		found := false
		for _, t := range targets {
			if t.name == name {
				chosen, found = append(chosen, t), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no target is called %q", name)
		}
	}
	return chosen, nil
}
