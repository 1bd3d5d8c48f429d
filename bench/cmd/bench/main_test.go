package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAShortRunIsReportedAndReadBack(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	dir := t.TempDir()
	figures := filepath.Join(dir, "benchmarks.json")
	var out, errOut bytes.Buffer
	args := []string{"-run", "^K20$", "-reps", "1", "-scale", "1", "-out", dir}
	if status := command(t.Context(), args, &out, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`make bench ARGS="-reps=1 -run=^K20$ -scale=1"`, "redis-server ", "go-redis/v9 v9", "K20 is 2 tasks x 5ms for each key (keys: 20)"} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), part) { // it wraps its lines
			t.Errorf("the report lacks %q:\n%s", part, text)
		}
	}
	if out.Len() > 0 {
		t.Errorf("the report went to the standard output: %s", &out)
	}
	args = []string{"-run", "^none$", "-into", figures, "-out", dir}
	if status := command(t.Context(), args, io.Discard, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "benchmarks.md")); err != nil || !bytes.Equal(again, text) {
		t.Errorf("a part without tables has changed the report: %v", err)
	}
	args = []string{"-from", figures, "-out", dir, "-release", "v0.1.0"}
	if status := command(t.Context(), args, io.Discard, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "benchmarks-load.md")); err != nil || !strings.Contains(string(page), "| railtoken | v0.1.0 |") {
		t.Errorf("the report has no column for the release: %v", err)
	}
	if status := command(t.Context(), args, io.Discard, io.Discard); status != statusFailed {
		t.Errorf("the release is kept twice: status %d", status)
	}
	if status := command(t.Context(), []string{"-from", figures}, &out, io.Discard); status != 0 || !strings.Contains(out.String(), "**K20**: 2 tasks") {
		t.Errorf("status %d:\n%s", status, &out)
	}
}

func TestAMissedTargetIsAnExitStatus(t *testing.T) {
	t.Parallel()
	for share, want := range map[string]int{"0.5": statusMissed, "1": 0} {
		file := filepath.Join(t.TempDir(), "run.json")
		run := `{"Tables": [{"Name": "C1", "Rows": [{"Name": "railtoken", "Values": {"of ideal": [` + share + `]}}]}]}`
		if err := os.WriteFile(file, []byte(run), 0o600); err != nil {
			t.Fatal(err)
		}
		var errOut bytes.Buffer
		if got := command(t.Context(), []string{"-from", file, "-check"}, io.Discard, &errOut); got != want {
			t.Errorf("%s of the ideal: status %d: %s", share, got, &errOut)
		}
		if got := command(t.Context(), []string{"-from", file}, io.Discard, io.Discard); got != 0 {
			t.Errorf("%s of the ideal, not checked: status %d", share, got)
		}
		if missed := strings.Contains(errOut.String(), "of ideal"); missed != (want != 0) {
			t.Errorf("%s of the ideal: %s", share, &errOut)
		}
	}
}

func TestTheCommandIsShownWithoutDirectories(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-orders", "/secret/place/orders.csv", "-out", "/secret/docs", "-quick"}, io.Discard)
	if err != nil || o.shown != `make bench ORDERS=orders.csv ARGS="-quick=true"` {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-run", "("}, {"-release", "v0.1.0"}, {"-reps", "0"}, {"-scale", "0"}, {"-scale", "101"}, {"A1"}, {"-nonsense"}} {
		if got := command(t.Context(), args, io.Discard, io.Discard); got != statusUsage {
			t.Errorf("%v: status %d", args, got)
		}
	}
	if got := command(t.Context(), []string{"-from", "nowhere.json"}, io.Discard, io.Discard); got != statusFailed {
		t.Errorf("a file that is not there: status %d", got)
	}
}
