package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// repository makes one with these files. Each is known to git, except for what .gitignore names.
func repository(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return root
}

// parsed returns a module with a go.mod in a folder.
func parsed(t *testing.T, dir, text string) mod {
	t.Helper()
	file, err := modfile.Parse(dir+"/go.mod", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod{dir, file}
}

const (
	rootMod   = "module github.com/railtoken/railtoken\n"
	nestedMod = "module github.com/railtoken/railtoken/pglock\n\nrequire github.com/railtoken/railtoken v0.1.0\n"
)

func TestModulesOfThisTreeCanBeReleased(t *testing.T) {
	t.Parallel()
	modules, err := readModules("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := releasable(modules, required(modules)); err != nil {
		t.Error(err)
	}
}

func TestFaultyModulesAreNotReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ dir, text, version, want string }{
		"replaced root":     {"pglock", nestedMod + "\nreplace github.com/railtoken/railtoken => ../\n", "v0.1.0", "remove the line"},
		"other version":     {"pglock", nestedMod, "v0.2.0", "-set v0.2.0"},
		"no version":        {"pglock", nestedMod, "0.1.0", "not a version"},
		"second major":      {"pglock", nestedMod, "v2.0.0", "not a version"},
		"path of elsewhere": {"pg", nestedMod, "v0.1.0", "must be github.com/railtoken/railtoken/pg"},
	} {
		err := releasable([]mod{parsed(t, ".", rootMod), parsed(t, c.dir, c.text)}, c.version)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	if err := releasable([]mod{parsed(t, ".", rootMod), parsed(t, "pglock", nestedMod)}, "v0.1.0"); err != nil {
		t.Errorf("modules without a fault: %v", err)
	}
}

func TestSetChangesEveryRequirement(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"go.mod": rootMod, "a/go.mod": "module a\n", "pglock/go.mod": nestedMod, "x/go.mod": "module x\n\n" +
		"require github.com/railtoken/railtoken v0.1.0\n\nrequire github.com/railtoken/railtoken/pglock v0.1.0 // indirect\n\n" +
		"require example.com/other v0.1.0\n"})
	if err := set(t.Context(), root, "v0.2.0"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"go.mod": 0, "pglock/go.mod": 1, "x/go.mod": 2} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), " v0.2.0"); got != want {
			t.Errorf("%s has %d requirements of v0.2.0, want %d:\n%s", name, got, want, text)
		}
	}
}

func TestPackHasWhatTheTagWillHave(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{
		"go.mod": rootMod, "LICENSE": "of all", "a.go": "package railtoken\n", "pglock/go.mod": nestedMod, "pglock/p.go": "package pglock\n",
		".gitignore": "/.bin/\n", ".bin/tool": "binary", "pglock/testdata/x": "x", "locking/l.go": "package locking\n",
	})
	proxy := t.TempDir()
	for _, c := range []struct {
		m    mod
		want []string
	}{
		{parsed(t, ".", rootMod), []string{".gitignore", "LICENSE", "a.go", "go.mod", "locking/l.go"}},
		{parsed(t, "pglock", nestedMod), []string{"LICENSE", "go.mod", "p.go", "testdata/x"}},
	} {
		if err := pack(t.Context(), root, c.m, "v0.1.0", proxy); err != nil {
			t.Fatal(err)
		}
		z, err := zip.OpenReader(filepath.Join(proxy, c.m.path(), "@v", "v0.1.0.zip"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range z.File {
			got = append(got, strings.TrimPrefix(f.Name, c.m.path()+"@v0.1.0/"))
		}
		z.Close()
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s has %q; want %q", c.m.path(), got, c.want)
		}
	}
}

func TestUsersGetThePackedModules(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{
		"go.mod": rootMod, "LICENSE": "of all", "a.go": "package railtoken\n\nconst Name = 1\n", "pglock/go.mod": nestedMod,
		"pglock/p.go":   "package pglock\n\nimport \"github.com/railtoken/railtoken\"\n\nconst Name = railtoken.Name\n",
		"example/go.go": "package main\n\nimport \"github.com/railtoken/railtoken\"\n\nfunc main() {\n\tprintln(railtoken.Name)\n}\n",
		"README.md":     "```go\n\tprintln(railtoken.Name)\n```\n", "docs/migration.md": "1. First:\n\n   ```go\n\tprintln(railtoken.Name)\n   ```\n",
	})
	modules := []mod{parsed(t, ".", rootMod), parsed(t, "pglock", nestedMod)}
	dir := t.TempDir()
	for _, m := range modules {
		if err := pack(t.Context(), root, m, "v0.1.0", dir); err != nil {
			t.Fatal(err)
		}
	}
	u := newUser(t.Context(), dir)
	u.env = append(u.env, "GOPROXY=file://"+dir)
	if err := u.fetch(root, modules, "v0.1.0"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte("```go\n\tprintln(1)\n```\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := "package a\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n\tprintln(1)\n\tx := 2\n}\n"
	if err := os.WriteFile(filepath.Join(root, "example", "a_test.go"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := u.fetch(root, modules, "v0.1.0"); err == nil || !strings.Contains(err.Error(), "declared and not used") {
		t.Errorf("a program that does not compile: %v", err)
	}
	if err := u.fetch(root, modules, "v0.2.0"); err == nil || !strings.Contains(err.Error(), "go get github.com/railtoken/railtoken@v0.2.0") {
		t.Errorf("a version that nobody packed: %v", err)
	}
}

func TestReadmeShowsCodeOfFiles(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"a.go": "package a\n\nvar A = 1\n", "b.go": "package b\n"})
	names := []string{"a.go", "b.go", "README.md", "removed.go"}
	got, err := shownSources(root, "x\n```go\nvar A = 1\n```\n```sh\nls\n```\n```go\npackage a\n```\n", names)
	if err != nil || !slices.Equal(got, []string{"a.go"}) {
		t.Errorf("sources are %q, %v; want a.go once", got, err)
	}
	for text, want := range map[string]string{"```go\nvar B = 1\n```\n": "in no Go file", "```go\nvar A": "no end", "": "no Go program"} {
		if _, err := shownSources(root, text, names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
