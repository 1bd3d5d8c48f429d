package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// user is somebody with a module cache of their own, who gets the released modules from the proxy that was packed.
type user struct {
	ctx context.Context //nolint:containedctx // the user lives as long as one check
	dir string
	env []string
}

// newUser returns a user whose files are in a folder with the packed modules.
func newUser(ctx context.Context, dir string) *user {
	goenv := func(name string) string {
		out, err := exec.CommandContext(ctx, "go", "env", name).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	return &user{ctx: ctx, dir: dir, env: append(os.Environ(),
		// Modules of others come from this machine's cache, or else from where its user gets them.
		"GOPROXY=file://"+dir+",file://"+goenv("GOMODCACHE")+"/cache/download,"+goenv("GOPROXY"),
		"GOMODCACHE="+filepath.Join(dir, "cache"),
		"GOBIN="+filepath.Join(dir, "bin"),
		"GOWORK=off",
		// The modules have not been published, and those of others were verified when the checkout got them.
		"GOSUMDB=off", "GONOPROXY=", "GOPRIVATE=",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -modcacherw",
	)}
}

// fetch gets and builds each module in a fresh folder, installs the command, and compiles the programs of README.
func (u *user) fetch(root string, modules []mod, version string) error {
	for _, m := range modules {
		begin := time.Now()
		folder, err := u.freshFolder()
		if err != nil {
			return err
		}
		command := strings.HasPrefix(m.dir, "cmd/")
		switch {
		case command:
			err = u.install(folder, m, version)
		default:
			err = u.get(folder, m, version)
		}
		if err == nil && m.dir == "." {
			err = u.readme(root, folder)
		}
		if err != nil {
			return fmt.Errorf("%s cannot be used: %w", m.tag(version), err)
		}
		fmt.Printf("%-28s fetched and built in %.1f s\n", m.tag(version), time.Since(begin).Seconds())
	}
	return nil
}

// freshFolder makes an empty folder.
func (u *user) freshFolder() (string, error) { return os.MkdirTemp(u.dir, "fresh-*") }

// get adds the module to a new one, and compiles all its packages.
func (u *user) get(folder string, m mod, version string) error {
	if err := u.run(folder, "mod", "init", "example.com/fresh"); err != nil {
		return err
	}
	if err := u.run(folder, "get", m.path()+"@"+version); err != nil {
		return err
	}
	return u.run(folder, "build", m.path()+"/...")
}

// install installs the command, and asks it for its version.
func (u *user) install(folder string, m mod, version string) error {
	if err := u.run(folder, "install", m.path()+"@"+version); err != nil {
		return err
	}
	program := filepath.Join(u.dir, "bin", filepath.Base(m.dir))
	out, err := exec.CommandContext(u.ctx, program, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w\n%s", m.dir, err, out)
	}
	if !strings.Contains(string(out), version) {
		return fmt.Errorf("%s --version says %q", m.dir, out)
	}
	return nil
}

// run runs the go command in a folder. Its error has the arguments and what it printed.
func (u *user) run(folder string, args ...string) error {
	cmd := exec.CommandContext(u.ctx, "go", args...)
	cmd.Dir, cmd.Env = folder, u.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
