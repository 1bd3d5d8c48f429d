package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool makes a program of a shell script in a folder, under the name of the tool that it stands for.
func tool(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// commit commits all files of a repository and tags that.
func commit(t *testing.T, root, tag string) {
	t.Helper()
	for _, args := range [][]string{{"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", tag}, {"tag", tag}} {
		if _, err := git(t.Context(), root, args...); err != nil {
			t.Fatal(err)
		}
	}
}

// rehearsed returns a rehearsal of v0.2.0 of a repository with the root and pglock.
func rehearsed(t *testing.T, root string) *rehearsal {
	t.Helper()
	modules := []mod{parsed(t, ".", rootMod), parsed(t, "pglock", nestedMod)}
	return &rehearsal{
		ctx: t.Context(), root: root, version: "v0.2.0", modules: modules,
		user: newUser(t.Context(), t.TempDir()), tools: t.TempDir(), out: t.TempDir(),
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	const log = "# Changelog\n\n## [Unreleased]\n\nThis will be 0.3.0.\n\n## [0.2.0] - 2027-01-31\n\n- New.\n\n### Roll-out\n\nFirst.\n\n## [0.1.0] - 2027-01-01\n\n- Old.\n"
	for version, want := range map[string]string{"v0.2.0": "- New.\n\n### Roll-out\n\nFirst.", "v0.1.0": "- Old.", "v0.3.0": "This will be 0.3.0.", "v0.4.0": ""} {
		text, undated, err := notes(log, version)
		if text != want || (err != nil) != (want == "") || undated != (version == "v0.3.0") {
			t.Errorf("%s: %q, undated %t, %v; want %q", version, text, undated, err, want)
		}
	}
}

func TestAVersionSaysHowFarTheAPIHasChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		last, version string
		change        change
		fits          bool
	}{
		{"v0.1.0", "v0.1.1", same, true},
		{"v0.1.0", "v0.1.1", additions, true},
		{"v0.1.0", "v0.1.1", incompatible, false},
		{"v0.1.0", "v0.2.0", incompatible, true},
		{"v0.9.0", "v1.0.0", incompatible, true},
		{"v1.0.0", "v1.0.1", additions, false},
		{"v1.0.0", "v1.1.0", additions, true},
		{"v1.0.0", "v1.1.0", incompatible, false},
		{"v0.2.0", "v0.2.0", same, false},
		{"v0.10.0", "v0.9.0", same, false},
	} {
		if err := sufficient(c.last, c.version, c.change); (err == nil) != c.fits {
			t.Errorf("%s after %s with change %d: %v", c.version, c.last, c.change, err)
		}
	}
}

// fakeDiff stands for apidiff: it compares the files named api. It sees one module at a time, and the root that this one requires.
const fakeDiff = `if [ "$2" = -w ]; then
  test "$(grep -c ^use "$GOWORK")" = 1 || exit 1
  case $PWD in */pglock) grep -q ^replace "$GOWORK" || exit 1 ;; esac
  cp api "$3"
elif cmp -s "$2" "$3"; then
  echo "Ignoring internal package x"
else
  echo "Incompatible changes:"
  echo "- A: removed"
fi`

func TestTheAPIIsComparedWithTheLastTag(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"go.mod": rootMod, "api": "A", "pglock/go.mod": nestedMod, "pglock/api": "B"})
	commit(t, root, "v0.1.0")
	r := rehearsed(t, root)
	tool(t, r.tools, "apidiff", fakeDiff)
	if report, err := r.apiDiff(); err != nil || !strings.Contains(report, "since v0.1.0") || strings.Count(report, "The API is the same.") != 2 {
		t.Errorf("nothing has changed: %q, %v", report, err)
	}
	if err := os.WriteFile(filepath.Join(root, "api"), []byte("B"), 0o644); err != nil {
		t.Fatal(err)
	}
	commit(t, root, "later")
	r.version = "v0.1.1"
	if report, err := r.apiDiff(); err == nil || !strings.Contains(report, "A: removed") {
		t.Errorf("a patch without A: %q, %v", report, err)
	}
	r.version = "v0.2.0"
	r.modules = append(r.modules, parsed(t, "etcdlock", strings.ReplaceAll(nestedMod, "pglock", "etcdlock")))
	if report, err := r.apiDiff(); err != nil || !strings.Contains(report, "A: removed") || !strings.Contains(report, "/etcdlock\nThe module is new.") {
		t.Errorf("a minor version without A, with a new module: %q, %v", report, err)
	}
}

func TestTheFirstReleaseHasNothingToCompare(t *testing.T) {
	t.Parallel()
	root := repository(t, map[string]string{"go.mod": rootMod})
	commit(t, root, "not-a-version")
	if report, err := rehearsed(t, root).apiDiff(); err != nil || !strings.Contains(report, "no earlier release") {
		t.Errorf("%q, %v", report, err)
	}
}

func TestWhatGovulncheckCannotCheckIsNotGreen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script          string
		fails, unasked  bool
		report, message string
	}{
		"nothing known":  {script: "echo No vulnerabilities found.", report: "No vulnerabilities found."},
		"one is reached": {script: "echo GO-2027-0001; exit 3", fails: true, report: "GO-2027-0001", message: "reaches known vulnerabilities"},
		"no database":    {script: "echo fetching vulnerabilities >&2; echo dial tcp: no such host >&2; exit 1", fails: true, unasked: true, report: "NOT CHECKED: dial tcp: no such host", message: "GOVULNDB"},
	} {
		r := rehearsed(t, repository(t, map[string]string{"pglock/go.mod": nestedMod}))
		tool(t, r.tools, "govulncheck", c.script)
		report, err := r.vulnerabilities()
		if (err != nil) != c.fails || errors.Is(err, errUnchecked) != c.unasked || !strings.Contains(report, c.report) {
			t.Errorf("%s: %q, %v", name, report, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v; want %q", name, err, c.message)
		}
	}
}

func TestChecksumsAreOfEachFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "1", "b": "2"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := sum(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, sumsFile))
	want := "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  a\nd4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35  b\n"
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want\n%s", got, err, want)
	}
}

func TestWithoutAKeyTheReleaseSaysThatItIsNotSigned(t *testing.T) {
	t.Parallel()
	if said, err := sign(t.Context(), t.TempDir(), ""); err != nil || !strings.HasPrefix(said, "not signed") {
		t.Errorf("%q, %v", said, err)
	}
}

func TestAKeySignsTheChecksums(t *testing.T) {
	t.Parallel()
	dir, keys := t.TempDir(), t.TempDir()
	if err := sum(dir); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(keys, "key")
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		if _, err := sign(t.Context(), dir, key); err == nil || !strings.Contains(err.Error(), "not installed") {
			t.Errorf("without ssh-keygen: %v", err)
		}
		return
	}
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if said, err := sign(t.Context(), dir, key); err != nil || !strings.HasPrefix(said, "signed") {
		t.Errorf("%q, %v", said, err)
	}
	if signature, err := os.ReadFile(filepath.Join(dir, sumsFile+".sig")); err != nil || !strings.Contains(string(signature), "BEGIN SSH SIGNATURE") {
		t.Errorf("the signature is %q, %v", signature, err)
	}
	if _, err := sign(t.Context(), dir, filepath.Join(keys, "none")); err == nil {
		t.Error("a key that does not exist has signed")
	}
}

func TestAFolderWithFilesIsNotOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := empty(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
	if err := empty(dir); err == nil || !strings.Contains(err.Error(), "has files") {
		t.Errorf("a folder with one: %v", err)
	}
}
