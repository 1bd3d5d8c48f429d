package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// built returns the folder of a site of these files, and its pages.
func built(t *testing.T, files map[string]string) (string, []page) {
	t.Helper()
	root, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} {
		if files[name] == "" {
			files[name] = "# " + name + "\n"
		}
	}
	for name, text := range files {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := build(root, out)
	if err != nil {
		t.Fatal(err)
	}
	return out, pages
}

func TestTheSiteOfThisTreeIsWhole(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	pages, err := build("../..", out)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(check(out, pages)...); err != nil {
		t.Error(err)
	}
	named := map[string]bool{}
	for _, e := range navigation {
		name, _, _ := strings.Cut(e.Target, "#")
		named[name] = true
	}
	for _, p := range pages {
		if p.title == "" {
			t.Errorf("%s has no title", p.source)
		}
		if strings.HasPrefix(p.source, "docs/") && !named[p.name] {
			t.Errorf("the navigation has no link to %s", p.source)
		}
	}
	for name, want := range map[string]string{
		"index.html": "One business key", "examples-quickstart.html": "func main()", "comparison.html": "River Pro", "design.html": `id="62-asynqs-scripts"`,
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
}

// The faults of a page that links to many places.
func TestLinksThatLeadNowhereAreFound(t *testing.T) {
	t.Parallel()
	out, pages := built(t, map[string]string{
		"docs/a.md": "# A\n\n## One *thing*\n\n## One thing\n\n[ok](b.md#two) [ok](#one-thing) [ok](#one-thing-1) [ok](../internal/x.go) [ok](../README.md)\n\n" +
			"[bad](b.md#three) [bad](#none) [bad](../internal/none.go)\n\n```go\nx := 1\n```\n\n```go\nfunc {\n```\n",
		"docs/b.md": "# B\n\n## Two\n", "internal/x.go": "package x\n",
	})
	var got []string
	for _, err := range check(out, pages) {
		text, _, _ := strings.Cut(err.Error(), "\n")
		if strings.HasPrefix(text, "a.html") || strings.HasPrefix(text, "docs/a.md") {
			got = append(got, text)
		}
	}
	slices.Sort(got)
	got = slices.DeleteFunc(got, func(s string) bool { // the navigation leads to pages that this site lacks
		return slices.ContainsFunc(navigation, func(e entry) bool { return e.Target != "" && strings.Contains(s, "a link to "+e.Target+",") })
	})
	want := []string{
		"a.html: a link to #none, which has no such heading", "a.html: a link to ../internal/none.go, which does not exist",
		"a.html: a link to b.html#three, which has no such heading",
		"docs/a.md shows Go code that does not parse:",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q; want %q", got, want)
	}
}

func TestFilesThatAreNoPagesAreShownInTheRepository(t *testing.T) {
	t.Parallel()
	out, _ := built(t, map[string]string{
		"docs/a.md": "# A\n\n[file](../internal/x.go) [folder](../internal) [program](../examples/p) ![p](p.svg)\n", "internal/x.go": "package x\n",
		"docs/p.svg": "<svg/>", "examples/p/main.go": "// Command p does it.\npackage main\n",
	})
	text, err := os.ReadFile(filepath.Join(out, "a.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		repository + "/blob/main/internal/x.go", repository + "/tree/main/internal", `href="examples-p.html"`, `src="p.svg"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "p.svg")); err != nil {
		t.Error(err)
	}
}

func TestTheIndexHasEachSection(t *testing.T) {
	t.Parallel()
	out, _ := built(t, map[string]string{"docs/a.md": "# A\n\nBefore.\n\n## If a worker dies\n\n| Its | `key` |\n| --- | --- |\n| is | free |\n\n```go\nx := 1\n```\n"})
	text, err := os.ReadFile(filepath.Join(out, "search-index.js"))
	if err != nil {
		t.Fatal(err)
	}
	var index []found
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(string(text), "window.searchIndex = "), ";\n")), &index); err != nil {
		t.Fatal(err)
	}
	var got []found
	for _, f := range index {
		if strings.HasPrefix(f.Address, "a.html") {
			got = append(got, f)
		}
	}
	want := []found{
		{"A", "A", "a.html", "Before."},
		{"A", "If a worker dies", "a.html#if-a-worker-dies", "Its key is free x := 1"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the index has %q; want %q", got, want)
	}
}
