package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func TestAShortRunShowsItsTablesAndWritesJSON(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	dir := t.TempDir()
	file, orders := filepath.Join(dir, "figures.json"), filepath.Join(dir, "orders.csv")
	if err := os.WriteFile(orders, []byte("order_id,seller_ids\na,s1\nb,s2 s3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	args := []string{"-run", "K4|orders|wake", "-only", "^railtoken$", "-reps", "1", "-scale", "2", "-wakes", "1", "-orders", orders, "-json", file}
	if status := command(t.Context(), args, &out, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	for _, part := range []string{
		"-reps 1", "-orders orders.csv", "redis-server ", "hibiken/asynq v", "### K4: 4 keys", "| bare | ", "| railtoken | ",
		"real orders: 4 tasks", "### wake", "| 10ms | the same worker | 1 | ", "| 50ms | another worker | 1 | ",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, &out)
		}
	}
	for _, part := range []string{"### K1", "| sleep-retry | ", dir} {
		if strings.Contains(out.String(), part) {
			t.Errorf("the report has %q:\n%s", part, &out)
		}
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte(`"Overlaps"`)) {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-run", "("},
		{"-only", "("},
		{"-reps", "0"},
		{"-bound", "1ms"},
		{"-scale", "101"},
		{"-wakes", "0"},
		{"-retries", "-1"},
		{"-orders", "nowhere.csv"},
		{"K1"},
	} {
		if got := command(t.Context(), args, io.Discard, io.Discard); got != 2 {
			t.Errorf("%v: status %d", args, got)
		}
	}
}

func TestFilesAreShownWithoutTheirDirectories(t *testing.T) {
	t.Parallel()
	got := shown([]string{"-quick", "-orders", "/some/where/a.csv", "--json=/some/b.json", "-run", "a/b"})
	if want := []string{"-quick", "-orders", "a.csv", "--json=b.json", "-run", "a/b"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestATableSaysWhatDidNotFinishAndWhatMustNotBe(t *testing.T) {
	t.Parallel()
	run := func(took time.Duration, done int) tasks.Result {
		return tasks.Result{Tasks: 100, Done: done, Finished: done == 100, Took: took, Runs: []int{1, 1, 3}, Commands: math.NaN()}
	}
	bad := run(20*time.Second, 50)
	bad.Overlaps, bad.Lost = 3, 2
	table := &table{Name: "X", Title: "title", Ideal: 500 * time.Millisecond, Rows: []*row{
		{Contestant: "bare", Results: []tasks.Result{run(time.Second, 100), run(2*time.Second, 100)}},
		{Contestant: "half", Locks: true, Results: []tasks.Result{run(2*time.Second, 100), run(4*time.Second, 100)}},
		{Contestant: "slow", Locks: true, Results: []tasks.Result{run(20*time.Second, 60), bad}},
	}}
	var out bytes.Buffer
	table.write(&out)
	for _, part := range []string{
		"| bare | 1.50 [1.25 1.75] | 1.00 [1.00 1.00] | 0.38 | 1.00 | 3.00 | 3 | 66.7 % | (0) | 0 | - |",
		"| half | 3.00 [2.50 3.50] | 0.50 [0.50 0.50] |",
		"| slow | > 20.0 [20.0 20.0], did not finish: 55 of 100 done | 0.04 ",
		"| 3 | 2 | - |",
		"slow: tasks of one key OVERLAPPED",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, &out)
		}
	}
}
