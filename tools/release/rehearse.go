package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rehearsal makes everything that a release publishes, and publishes nothing.
type rehearsal struct {
	ctx     context.Context //nolint:containedctx // it lives as long as one rehearsal
	root    string
	version string
	modules []mod
	user    *user
	tools   string // folder with the tools, under their names
	out     string // folder for what is released
}

// make writes the files of the release. What could not be checked is joined to errUnchecked; any other error ends the rehearsal.
func (r *rehearsal) make() error {
	if err := r.notes(); err != nil {
		return err
	}
	diff, err := r.apiDiff()
	if err := errors.Join(r.write("api-diff.txt", diff), err); err != nil {
		return err
	}
	report, unchecked := r.vulnerabilities()
	if err := r.write("vulnerabilities.txt", report); err != nil {
		return err
	}
	if unchecked != nil && !errors.Is(unchecked, errUnchecked) {
		return unchecked
	}
	sums, err := moduleSums(r.user.dir, r.version, r.modules)
	if err == nil {
		err = r.write("modules.sum", sums)
	}
	if err == nil {
		err = r.contents()
	}
	if err == nil {
		err = sum(r.out)
	}
	if err != nil {
		return err
	}
	signed, err := sign(r.ctx, r.out, os.Getenv("SIGNING_KEY"))
	if err != nil {
		return err
	}
	fmt.Println(signed)
	return unchecked
}

// notes writes the notes of the release.
func (r *rehearsal) notes() error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	text, undated, err := notes(string(changelog), r.version)
	if err != nil {
		return err
	}
	if undated {
		fmt.Println("the notes are those of [Unreleased]: give the release its section, with the date, before you tag it")
	}
	return r.write("notes.md", "# "+r.version+"\n\n"+text+"\n")
}

// contents writes the license, the command for each platform, and a bill of materials for every module and every binary.
func (r *rehearsal) contents() error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err == nil {
		err = r.write("LICENSE", string(license))
	}
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if strings.HasPrefix(m.dir, "cmd/") {
			err = r.binaries(m)
		} else {
			err = r.libraryBill(m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
	}
	return nil
}

// binaries builds a command as go install does, from the packed modules.
func (r *rehearsal) binaries(m mod) error {
	for _, arch := range []string{"amd64", "arm64"} {
		// go install puts programs for other platforms only below GOPATH.
		gopath := filepath.Join(r.user.dir, "gopath-"+arch)
		u := *r.user
		u.env = append(u.env[:len(u.env):len(u.env)], "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOBIN=", "GOPATH="+gopath, "GOFLAGS=-trimpath -modcacherw")
		if err := u.run(r.user.dir, "install", m.path()+"@"+r.version); err != nil {
			return err
		}
		name := filepath.Base(m.dir)
		built, err := filepath.Glob(filepath.Join(gopath, "bin", "*", name))
		if err != nil || len(built) == 0 {
			built = []string{filepath.Join(gopath, "bin", name)} // that for this platform
		}
		released := filepath.Join(r.out, name+"_"+r.version+"_linux_"+arch)
		program, err := os.ReadFile(built[0])
		if err == nil {
			err = os.WriteFile(released, program, 0o755)
		}
		if err != nil {
			return err
		}
		if _, err := r.tool(r.out, r.user.env, "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.version,
			"-output", released+".cdx.json", released); err != nil {
			return err
		}
	}
	return nil
}

// libraryBill writes the bill of materials of a module that is no command: what a program that imports all of it gets.
func (r *rehearsal) libraryBill(m mod) error {
	folder, err := r.user.freshFolder()
	if err != nil {
		return err
	}
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(r.user.dir, "cache", filepath.FromSlash(m.path())+"@"+r.version))); err != nil {
		return err
	}
	// The packed modules are in no go.sum yet.
	if err := r.user.run(folder, "mod", "tidy"); err != nil {
		return err
	}
	// The tool takes the version from a tag.
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=release", "-c", "user.email=release@localhost", "commit", "-q", "--allow-empty", "-m", r.version},
		{"tag", r.version},
	} {
		if _, err := git(r.ctx, folder, args...); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(m.path(), filepath.Dir(rootPath)), "/"), "/", "-")
	_, err = r.tool(folder, r.user.env, "cyclonedx-gomod", "mod", "-json", "-type", "library", "-noserial", "-notimestamp", "-output",
		filepath.Join(r.out, name+"_"+r.version+".cdx.json"), folder)
	return err
}

// tool runs a tool in a folder. It returns what the tool has printed, also beside an error.
func (r *rehearsal) tool(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.ctx, filepath.Join(r.tools, name), args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// write writes a file of the release.
func (r *rehearsal) write(name, text string) error {
	return os.WriteFile(filepath.Join(r.out, name), []byte(text), 0o644)
}
