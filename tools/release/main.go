// Command release checks that the modules of this repository can be fetched once they are tagged. It packs each module as the
// working tree has it, and fetches it in a fresh folder, as a user would.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	version := flag.String("version", "", "the version to release; by default the one that the nested modules require of the root")
	to := flag.String("set", "", "only set this version in every go.mod that requires a module of the repository")
	out := flag.String("out", "", "also write all that the release publishes to this folder, which must be empty or not there")
	tools := flag.String("tools", "", "the folder with apidiff, govulncheck and cyclonedx-gomod, for -out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *to != "" {
		err = set(ctx, *root, *to)
	} else {
		err = check(ctx, *root, *version, *out, *tools)
	}
	switch {
	case errors.Is(err, errUnchecked):
		fmt.Fprintln(os.Stderr, "error: all else is well, but", err)
		os.Exit(unchecked) //nolint:gocritic // stop only ends the wait for signals
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// unchecked is the exit status if nothing is wrong, but something could not be checked: as with railtoken doctor.
const unchecked = 3

// check packs the released modules into a folder that is removed at the end, and fetches each. With out it also writes what the release
// publishes to that folder.
func check(ctx context.Context, root, version, out, tools string) error {
	modules, err := readModules(root)
	if err != nil {
		return err
	}
	if version == "" {
		version = required(modules)
	}
	if err := releasable(modules, version); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "railtoken-release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, m := range modules {
		if err := pack(ctx, root, m, version, dir); err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
	}
	u := newUser(ctx, dir)
	if err := u.fetch(root, modules, version); err != nil || out == "" {
		return err
	}
	if err := empty(out); err != nil {
		return err
	}
	r := rehearsal{ctx: ctx, root: root, version: version, modules: modules, user: u, tools: tools, out: out}
	return r.make()
}

// empty makes a folder, and refuses one with files: they would be taken for those of the release.
func empty(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return errors.Join(fmt.Errorf("%s has files: remove it", dir), err)
	}
	return nil
}
