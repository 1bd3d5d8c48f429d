// Command release checks that the modules of this repository can be fetched once they are tagged. It packs each module as the
// working tree has it, and fetches it in a fresh folder, as a user would.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	version := flag.String("version", "", "the version to release; by default the one that the nested modules require of the root")
	to := flag.String("set", "", "only set this version in every go.mod that requires a module of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *to != "" {
		err = set(ctx, *root, *to)
	} else {
		err = check(ctx, *root, *version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:gocritic // stop only ends the wait for signals
	}
}

// check packs the released modules into a folder that is removed at the end, and fetches each.
func check(ctx context.Context, root, version string) error {
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
	return newUser(ctx, dir).fetch(root, modules, version)
}
