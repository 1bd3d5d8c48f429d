package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// pack writes a version of the module, as the working tree has it, to a folder that serves as a module proxy with a file URL. Files
// that git ignores are left out. A nested module without a license gets that of the root, as the go command does it.
func pack(ctx context.Context, root string, m mod, version, proxy string) error {
	files, err := tree(ctx, root, m.dir)
	if err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.path())
	if err != nil {
		return err
	}
	base := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	gomod, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.dir), "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": gomod, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(base, name), text, 0o644); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(base, version+".zip"))
	if err != nil {
		return err
	}
	if err = zip.Create(out, module.Version{Path: m.path(), Version: version}, files); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// file is a file of a module: its path there, and its name on this machine.
type file struct{ inModule, name string }

func (f file) Path() string                 { return f.inModule }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }

// tree returns the files below a folder of the repository that git knows or would add. zip.Create leaves out nested modules.
func tree(ctx context.Context, root, dir string) (files []zip.File, err error) {
	names, err := list(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	licensed := false
	for _, name := range names {
		on := filepath.Join(root, filepath.FromSlash(name))
		if _, err := os.Lstat(on); os.IsNotExist(err) {
			continue // removed, but not yet in a commit
		}
		in := name
		if dir != "." {
			in = strings.TrimPrefix(name, dir+"/")
		}
		licensed = licensed || in == "LICENSE"
		files = append(files, file{in, on})
	}
	if !licensed {
		files = append(files, file{"LICENSE", filepath.Join(root, "LICENSE")})
	}
	return files, nil
}

// list returns the paths of the files below a folder of the repository, seen from its root.
func list(ctx context.Context, root, dir string) ([]string, error) {
	// The repository may belong to another user, as in a container.
	cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path.Clean(dir))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}
