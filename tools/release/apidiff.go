package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// apiDiff compares the exported API of each module with that of the last tag. It returns a report for people, and why the version says
// less than the change.
func (r *rehearsal) apiDiff() (string, error) {
	last, err := lastTag(r.ctx, r.root)
	if err != nil {
		return "", err
	}
	if last == "" {
		return "There is no earlier release to compare with.\n", nil
	}
	before, err := os.MkdirTemp(r.user.dir, "before-*")
	if err != nil {
		return "", err
	}
	if err := checkout(r.ctx, r.root, last, before); err != nil {
		return "", err
	}
	report, most := "Changes of the API since "+last+"\n", same
	for _, m := range r.modules {
		if strings.HasPrefix(m.dir, "cmd/") {
			continue // nobody imports a command
		}
		text, err := r.moduleDiff(before, m)
		if err != nil {
			return "", fmt.Errorf("the API of %s: %w", m.path(), err)
		}
		report += "\n# " + m.path() + "\n" + text
		most = max(most, changeOf(text))
	}
	return report, sufficient(last, r.version, most)
}

// moduleDiff returns what apidiff says of one module.
func (r *rehearsal) moduleDiff(before string, m mod) (string, error) {
	old := filepath.Join(before, filepath.FromSlash(m.dir))
	if _, err := os.Stat(filepath.Join(old, "go.mod")); errors.Is(err, os.ErrNotExist) {
		return "The module is new.\n", nil
	}
	exports := [2]string{filepath.Join(before, "old.export"), filepath.Join(before, "new.export")}
	for i, root := range []string{before, r.root} {
		// A workspace of the module alone: that of the checkout has modules whose paths begin as that of the root does.
		work := filepath.Join(before, fmt.Sprintf("api%d.work", i))
		dir := filepath.Join(root, filepath.FromSlash(m.dir))
		text := fmt.Sprintf("go %s\n\nuse %q\n", goVersion(m), dir)
		if m.dir != "." { // which requires a root that may not be published
			text += fmt.Sprintf("replace %s => %q\n", rootPath, root)
		}
		if err := os.WriteFile(work, []byte(text), 0o644); err != nil {
			return "", err
		}
		env := append(os.Environ(), "GOWORK="+work)
		if _, err := r.tool(dir, env, "apidiff", "-m", "-w", exports[i], m.path()); err != nil {
			return "", err
		}
	}
	out, err := r.tool(before, os.Environ(), "apidiff", "-m", exports[0], exports[1])
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Ignoring internal package ") {
			text.WriteString(line)
		}
	}
	if strings.TrimSpace(text.String()) == "" {
		return "The API is the same.\n", nil
	}
	return text.String(), nil
}

// goVersion returns the version of Go that a module requires.
func goVersion(m mod) string {
	if m.file.Go == nil {
		return "1.16" // as the go command takes it
	}
	return m.file.Go.Version
}

// lastTag returns the newest tag of the root module that the tree comes after, or "" if there is none.
func lastTag(ctx context.Context, root string) (string, error) {
	out, err := git(ctx, root, "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*")
	first, _, _ := strings.Cut(string(out), "\n")
	return first, err
}

// checkout writes the files of a tag to a folder.
func checkout(ctx context.Context, root, tag, dir string) error {
	out, err := git(ctx, root, "archive", "--format=tar", tag)
	if err != nil {
		return err
	}
	for files := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(files)
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
}

// git runs git in the repository, which may belong to another user, as in a container.
func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}
