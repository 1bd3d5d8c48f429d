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

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
}

func TestAShortRunWritesTheReportItsPlotsAndJSON(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	figures := filepath.Join(dir, "figures.json")
	var out, errOut bytes.Buffer
	status := command(t.Context(), []string{"-run", "P1$", "-reps", "1", "-scale", "5", "-out", dir, "-json", figures}, &out, &errOut)
	if status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`make bench ARGS="-reps=1 -run=P1$ -scale=5"`, "redis-server ", "go-redis/v9 v9", "**P1**"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the report lacks %q:\n%s", part, text)
		}
	}
	if out.Len() > 0 {
		t.Errorf("the report went to the standard output: %s", &out)
	}
	if data, err := os.ReadFile(figures); err != nil || !bytes.Contains(data, []byte(`"us per pair"`)) {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestTheCommandIsShownWithoutDirectories(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-orders", "/secret/place/orders.csv", "-out", "/secret/docs", "-quick"}, io.Discard)
	if err != nil || o.shown != `make bench ORDERS=orders.csv ARGS="-quick=true"` {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestAReportGoesToTheStandardOutputByDefault(t *testing.T) {
	needRedis(t)
	var out bytes.Buffer
	if status := command(t.Context(), []string{"-run", "nothing at all"}, &out, io.Discard); status != 0 || !strings.Contains(out.String(), "# Benchmarks") {
		t.Errorf("status %d:\n%s", status, &out)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-run", "("}, {"-reps", "0"}, {"-scale", "0"}, {"-scale", "101"}, {"A1"}, {"-nonsense"}} {
		if got := command(t.Context(), args, io.Discard, io.Discard); got != 2 {
			t.Errorf("%v: status %d", args, got)
		}
	}
}
