package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func timelineReport() *report {
	key := testRun.orderKey("1</script>")
	return &report{
		Done: 2,
		Seen: seen{Holds: map[string][]hold{key: {
			{TaskID: "audit:1", Type: auditType, Began: at(1000), Ended: at(1010)},
			{TaskID: "allocate:1", Type: allocateType, Began: at(1012), Ended: at(1020)},
		}}},
		Met: met{
			outcomes: outcomes{Parked: 1}, Durations: durations{8e6}, Refusals: map[string]int{key: 1},
			Waits: map[string][]wait{key: {{TaskID: "allocate:1", Type: allocateType, Began: at(1004), Ended: at(1012), Refusals: 1, Ending: endedRunning}}},
		},
	}
}

func TestPageHasHoldsAndWaits(t *testing.T) {
	t.Parallel()
	p := newPage(timelineReport(), testRun, "strategy wait", false)
	if p.Length != 20 || len(p.Lanes) != 1 || p.Keys != 1 {
		t.Fatalf("%+v", p)
	}
	l := p.Lanes[0]
	if l.Key != "order:1</script>" || l.Conflicts != 1 || l.HoldRows != 1 || l.WaitRows != 1 {
		t.Errorf("lane %+v", l)
	}
	if h := l.Holds[1]; h.Task != "allocate:1" || h.Began != 12 || h.Ended != 20 {
		t.Errorf("hold %+v", h)
	}
	if w := l.Waits[0]; w.Began != 4 || w.Ended != 12 || w.Ending != endedRunning {
		t.Errorf("wait %+v", w)
	}
}

func TestPageNamesTheKeyOfEachWait(t *testing.T) {
	t.Parallel()
	r := timelineReport()
	key, seller := testRun.orderKey("1</script>"), testRun.sellerKey("9")
	r.Met.Waits[seller] = []wait{{TaskID: "allocate:1", Began: at(1002), Ended: at(1004), Refusals: 1, Ending: endedElsewhere}}
	p := newPage(r, testRun, "strategy wait", false)
	l := p.Lanes[0]
	if w := l.Waits[0]; w.Key != testRun.business(key) || !slices.Equal(w.Holders, []string{"audit:1"}) {
		t.Errorf("the task waits for %q, held by %q", w.Key, w.Holders)
	}
	if longest := p.Longest; len(longest) != 1 || longest[0].Key != testRun.business(key) || longest[0].HeldBy() != "audit:1" || longest[0].Length() != "8.0 ms" {
		t.Errorf("the longest waits are %+v", longest)
	}
	want := []waited{{testRun.business(key), 8}, {testRun.business(seller), 2}}
	if h := l.Holds[1]; !slices.Equal(h.Waited, want) {
		t.Errorf("the task has waited %+v, want %+v", h.Waited, want)
	}
}

func TestHeldByNamesAFewHolders(t *testing.T) {
	t.Parallel()
	if got := (bar{Holders: []string{"a", "b", "c", "d", "e"}}).HeldBy(); got != "a, b, c and 2 more" {
		t.Errorf("held by %q", got)
	}
}

func TestPageNeedsNothingElseAndTrustsNoKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := newPage(timelineReport(), testRun, "strategy wait", false).render(&out); err != nil {
		t.Fatal(err)
	}
	html := out.String()
	for _, outside := range []string{"http:", "https:", "//cdn", "src=", "@import", "url("} {
		if strings.Contains(html, outside) {
			t.Errorf("the page refers to something outside: %s", outside)
		}
	}
	if n := strings.Count(html, "</script>"); n != 1 {
		t.Errorf("%d ends of scripts: the key has escaped", n)
	}
	_, after, _ := strings.Cut(html, "const data = ")
	data, _, _ := strings.Cut(after, ";\n")
	var p page
	if err := json.Unmarshal([]byte(data), &p); err != nil || len(p.Lanes) != 1 || p.Lanes[0].Key != "order:1</script>" {
		t.Errorf("the data of the page: %v, %+v", err, p)
	}
}

func TestPageWithFaultsSaysSo(t *testing.T) {
	t.Parallel()
	r := timelineReport()
	r.Overlaps = 3
	var out bytes.Buffer
	if err := newPage(r, testRun, "no locks", true).render(&out); err != nil {
		t.Fatal(err)
	}
	if html := out.String(); !strings.Contains(html, "3 times a task worked") || strings.Contains(html, "One task at a time on every key") {
		t.Error("the page does not mention the overlaps")
	}
}

func TestStackKeepsBarsApart(t *testing.T) {
	t.Parallel()
	bars := []bar{{Began: 5, Ended: 9}, {Began: 0, Ended: 10}, {Began: 9, Ended: 12}, {Began: 10, Ended: 11}, {Began: 6, Ended: 7}}
	if rows := stack(bars); rows != 3 {
		t.Errorf("%d rows, want 3", rows)
	}
	for i, a := range bars {
		for _, b := range bars[i+1:] {
			if a.Row == b.Row && a.Began < b.Ended && b.Began < a.Ended {
				t.Errorf("%+v and %+v are in one row", a, b)
			}
		}
	}
	if rows := stack(nil); rows != 0 {
		t.Errorf("no bars take %d rows", rows)
	}
}

func TestReplaceFileKeepsTheOldOneOnFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	write := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		}
	}
	if err := replaceFile(path, write("first", nil)); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, write("sec", errors.New("disk full"))); err == nil {
		t.Error("the failure was not reported")
	}
	if got, err := os.ReadFile(path); string(got) != "first" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if list, err := os.ReadDir(dir); len(list) != 1 || err != nil {
		t.Errorf("files left behind: %v, %v", list, err)
	}
}
