package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// rootPath is the path of the module at the root of the repository.
const rootPath = "github.com/railtoken/railtoken"

// released are the folders of the modules that users fetch, in the order of their tags. The other modules are never tagged.
var released = []string{".", "pglock", "etcdlock", "metrics/prometheus", "metrics/otel", "cmd/railtoken"}

// mod is a released module.
type mod struct {
	dir  string // seen from the root, with slashes
	file *modfile.File
}

func (m mod) path() string { return m.file.Module.Mod.Path }

// tag returns the name of the git tag that releases a version of the module.
func (m mod) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// readModules reads the go.mod of each released module.
func readModules(root string) ([]mod, error) {
	modules := make([]mod, 0, len(released))
	for _, dir := range released {
		name := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		modules = append(modules, mod{dir, file})
	}
	return modules, nil
}

// required returns the version of the root that the first nested module requires, or "" if none requires it.
func required(modules []mod) string {
	for _, m := range modules {
		for _, r := range m.file.Require {
			if r.Mod.Path == rootPath {
				return r.Mod.Version
			}
		}
	}
	return ""
}

// ours reports whether a requirement is one of the modules of this repository.
func ours(r *modfile.Require) bool {
	return r.Mod.Path == rootPath || strings.HasPrefix(r.Mod.Path, rootPath+"/")
}

// set makes every module of the repository require the others at this version.
func set(ctx context.Context, root, version string) error {
	names, err := list(ctx, root, ".")
	if err != nil {
		return err
	}
	for _, name := range names {
		if path.Base(name) != "go.mod" {
			continue
		}
		name = filepath.Join(root, filepath.FromSlash(name))
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return err
		}
		for _, r := range slices.Clone(file.Require) {
			if ours(r) {
				if err := file.AddRequire(r.Mod.Path, version); err != nil {
					return err
				}
			}
		}
		changed, err := file.Format()
		if err == nil && !bytes.Equal(changed, text) {
			err = os.WriteFile(name, changed, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// releasable reports everything in the go.mod files that would keep users from fetching the modules at this version.
func releasable(modules []mod, version string) error {
	if semver.Canonical(version) != version || version == "" || semver.Major(version) > "v1" {
		return fmt.Errorf("%q is not a version such as v0.1.0", version)
	}
	var faults []error
	for _, m := range modules {
		name := m.file.Syntax.Name
		if want := strings.TrimSuffix(rootPath+"/"+m.dir, "/."); m.path() != want {
			faults = append(faults, fmt.Errorf("%s: the module is %s; in this folder it must be %s", name, m.path(), want))
		}
		for _, r := range m.file.Replace {
			faults = append(faults, fmt.Errorf(`%s: "go install" refuses a module that replaces %s: remove the line, because go.work serves the checkout`, name, r.Old.Path))
		}
		for _, r := range m.file.Require {
			if ours(r) && r.Mod.Version != version {
				faults = append(faults, fmt.Errorf("%s: requires %s %s: run go run ./tools/release -set %s", name, r.Mod.Path, r.Mod.Version, version))
			}
		}
	}
	return errors.Join(faults...)
}
