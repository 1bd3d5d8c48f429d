package main

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAShortRunShowsItsTablesAndWritesJSON(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	var out, errOut bytes.Buffer
	status := command(t.Context(), []string{"-run", "A1$|C4", "-reps", "1", "-duration", "20ms", "-json", file}, &out, &errOut)
	if status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	for _, part := range []string{"-reps 1", "redis-server ", "A1  ", "floor", "railtoken", "redislock", "redsync", "rueidislock", "C4  ", "TARGETS"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, &out)
		}
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte(`"p50 us"`)) {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestATargetIsJudgedByItsMedian(t *testing.T) {
	t.Parallel()
	table := &Table{}
	table.row("a").add("x", 3)
	table.row("b").add("x", 2)
	table.atMost(1.5, "at the bound", table.against("x", "a", "b"))
	table.atLeast(2, "below it", table.against("x", "a", "b"))
	table.atLeast(2, "of one who is not there", table.against("x", "a", "c"))
	table.atMost(2, "not a number", []float64{math.NaN()})
	if len(table.Targets) != 3 || !table.Targets[0].Met() || table.Targets[1].Met() || table.Targets[2].Met() {
		t.Errorf("got %+v", table.Targets)
	}
	if got := write(io.Discard, Setting{}, []*Table{table}); got != 2 {
		t.Errorf("%d targets are missed, want 2", got)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-run", "("}, {"-reps", "0"}, {"-duration", "1ms"}, {"A1"}} {
		if got := command(t.Context(), args, io.Discard, io.Discard); got != 2 {
			t.Errorf("%v: status %d", args, got)
		}
	}
}
