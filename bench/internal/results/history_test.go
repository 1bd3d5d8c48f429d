package results

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// measured is a run in which railtoken reaches a share of what asynq does without locks.
func measured(share float64, commit string) *Results {
	t := &Table{Name: "K1"}
	t.Add("bare", "tasks/s", 100)
	t.Add("railtoken", "tasks/s", 100*share)
	return &Results{Rounds: 1, Took: "1s", Tables: []*Table{t}, Setting: Setting{Command: "make bench", Commit: commit, Machine: "two cores"}}
}

// historyOf returns the rows of the history in the report that is written to a directory.
func historyOf(t *testing.T, dir string, r *Results) (header, row string) {
	t.Helper()
	if err := WriteReport(r, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks-load.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Over the releases")
	for line := range strings.Lines(section) {
		switch {
		case strings.HasPrefix(line, "| railtoken |"):
			header = strings.TrimSpace(line)
		case strings.HasPrefix(line, "| Tasks of one key:"):
			_, row, _ = strings.Cut(strings.TrimSpace(line), "without locks")
		}
	}
	return header, row
}

func TestTheHistoryHasAColumnForEachRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := measured(0.9, "c")
	if header, row := historyOf(t, dir, now); header != "| railtoken | this page |" || row != " | 0.90 |" {
		t.Errorf("without releases:\n%s\n%s", header, row)
	}
	for version, share := range map[string]float64{"v0.10.0": 0.8, "v0.9.0": 0.7} {
		if err := Keep(measured(share, version), dir, version); err != nil {
			t.Fatal(err)
		}
	}
	if header, row := historyOf(t, dir, now); header != "| railtoken | v0.9.0 | v0.10.0 | this page |" || row != " | 0.70 | 0.80 | 0.90 |" {
		t.Errorf("with two releases:\n%s\n%s", header, row)
	}
	if err := Keep(now, dir, "v0.11.0"); err != nil {
		t.Fatal(err)
	}
	if header, row := historyOf(t, dir, now); header != "| railtoken | v0.9.0 | v0.10.0 | v0.11.0 |" || row != " | 0.70 | 0.80 | 0.90 |" {
		t.Errorf("with the page's own release:\n%s\n%s", header, row)
	}
}

func TestAReleaseIsKeptOnceAndUnderItsVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Keep(measured(0.9, "a"), dir, "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(historyDir(dir), "v0.1.0.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v0.1.0", "0.2.0", "v1", "../v0.2.0", ""} {
		if err := Keep(measured(0.5, "b"), dir, version); err == nil {
			t.Errorf("%q is accepted", version)
		}
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the results of a release have changed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(historyDir(dir), "draft.json"), before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(measured(0.9, "a"), dir); err == nil || !strings.Contains(err.Error(), "draft.json") {
		t.Errorf("a file that is no release's: %v", err)
	}
}
