package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// whole is the run whose report is in the repository.
func whole(t *testing.T) *Results {
	t.Helper()
	r, err := Read("../../../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheReportIsThatOfItsFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const kept = "../../../docs/benchmarks/history"
	if _, err := os.Stat(kept); err == nil {
		if err := os.CopyFS(historyDir(dir), os.DirFS(kept)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteReport(whole(t), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "benchmarks-load.md", "benchmarks.json", "benchmarks/tasks.svg", "benchmarks/locks.svg", "benchmarks/contended.svg"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile("../../../docs/" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what its figures say: run .bin/bench -from docs/benchmarks.json -out docs (%v)", name, err)
		}
	}
}

func TestAReaderFinishesTheReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := execute(&out, "page.md.tmpl", whole(t)); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, "\n"); n >= 300 {
		t.Errorf("the report has %d lines", n)
	}
	last := -1
	for _, part := range []string{
		"# Benchmarks", "## The answer", "## Where railtoken is behind", "targets are missed", "## Tasks that want", "| K1 | K4 | K20 |",
		"## From a release", "## Locks", "of ideal: 1 process", "## Does a task cost more", "## What a lock costs", "## How it was measured",
	} {
		at := strings.Index(text, part)
		if at < last {
			t.Errorf("%q is missing, or comes too early", part)
		}
		last = at
	}
	if strings.Contains(text, "**-**") || strings.Contains(text, "not measured") {
		t.Error("the report shows a figure that was not measured")
	}
}

func TestSectionsOfTablesThatWereNotMeasuredAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, heading := range map[string]string{
		"saturated": "## A full core", "open-loop": "## Latency under load", "noisy-tenant": "## A noisy tenant",
		"recovery": "## Recovery",
	} {
		table := &Table{Name: name, Title: "what was done", Rows: []*Row{{Name: "bare", Note: "it slept"}}}
		for _, measured := range []bool{true, false} {
			r := &Results{}
			if measured {
				r.Tables = append(r.Tables, table)
			}
			var out bytes.Buffer
			if err := execute(&out, "load.md.tmpl", r); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{heading, "what was done", "- " + name + ", bare: it slept"} {
				if strings.Contains(out.String(), part) != measured {
					t.Errorf("%s, measured: %v: the report has %q: %v", name, measured, part, !measured)
				}
			}
		}
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.0041: "0.0041", 0.05: "0.05", 1: "1.00", 12.34: "12.3", 123.4: "123", 1234: "1\u2009234", 1234567: "1\u2009234\u2009567",
		-1234: "-1\u2009234", math.Inf(1): "∞", 1000: "1\u2009000",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is shown as %q, want %q", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "-" {
		t.Errorf("no number is shown as %q", got)
	}
	if got := WithQuartiles(Spread{Median: 2, Low: 1, High: 3}); got != "2.00 [1.00 3.00]" {
		t.Errorf("got %q", got)
	}
	if got := WithQuartiles(Spread{Median: 2, Low: 2, High: 2}); got != "2.00" {
		t.Errorf("got %q", got)
	}
}

// sample is a run of one scenario, in which one target is met and one is missed.
func sample() *Results {
	t := &Table{Name: "K1", Title: "one | key"}
	for _, v := range []float64{1, 2, 3} {
		t.Add("railtoken", "tasks/s", v)
		t.Add("bare", "tasks/s", 2*v)
		t.Add("redsync", "tasks/s", 1.5*v)
		t.Add("redsync", "finished", v-1)
		t.Add("railtoken", "≤2 runs", 1)
	}
	t.Row("railtoken").Note = "it slept"
	return &Results{Rounds: 3, Took: "1m0s", Tables: []*Table{t}}
}

func TestAPartShowsItsTablesAndTargets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := WriteTables(&out, sample()); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"**K1**: one | key", "|  | tasks/s | finished | ≤2 runs |", "| railtoken | 2.00 [1.50 2.50] |  | 1.00 |",
		"| redsync | 3.00 [2.25 3.75] * | 1.00 [0.50 1.50] * |", "- K1, railtoken: it slept",
		"| missed | K1 | tasks/s ÷ bare | ≥ 0.92 | 0.50 |", "| met | K1 | ≤2 runs",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the tables lack %q:\n%s", part, &out)
		}
	}
}

func TestColumnsAreRatiosWithinARound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, base, row string
		want            float64
	}{{"tasks/s", "", "bare", 4}, {"tasks/s", "bare", "railtoken", 0.5}, {"tasks/s ÷ ≤2 runs", "", "railtoken", 2}} {
		if got := newColumn("", "K1", c.name, c.base).values(sample(), c.row).Median(); got != c.want {
			t.Errorf("%s of %s by %q is %v, want %v", c.name, c.row, c.base, got, c.want)
		}
	}
}

func TestOthersThatAreAheadAreListed(t *testing.T) {
	t.Parallel()
	got := ahead(sample(), true, "tasks/s", []string{"K1"})
	if !strings.Contains(got, "| K1 | tasks/s | 2.00 | redsync 3.00 [2.25 3.75] *: 0.67 |") || strings.Contains(got, "bare") {
		t.Errorf("got:\n%s", got)
	}
}

// full fails after some bytes, as a disk does.
type full struct{ left int }

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	f.left -= len(b)
	if f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 100, 500} {
		if err := execute(&full{left}, "page.md.tmpl", sample()); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
	if err := WriteTables(&full{100}, sample()); !errors.Is(err, errFull) {
		t.Errorf("tables: %v", err)
	}
}

func TestBarsAreAsLongAsTheirValues(t *testing.T) {
	t.Parallel()
	templates, err := parseTemplates(sample())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	drawn := newPlot(sample(), "a <b> & c", "redsync", []column{{"one", "K1", "tasks/s", ""}})
	if err := templates.ExecuteTemplate(&out, "svg", drawn); err != nil {
		t.Fatal(err)
	}
	widths := map[string]float64{}
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			of := map[string]string{}
			for _, a := range e.Attr {
				of[a.Name.Local] = a.Value
			}
			wide, err := strconv.ParseFloat(of["width"], 64)
			if err != nil {
				t.Fatal(err)
			}
			widths[of["fill"]] = wide
		}
	}
	if ours, bare := widths["#0072b2"], widths["#999999"]; ours == 0 || math.Abs(bare/ours-2) > 0.01 {
		t.Errorf("bars of 2 and 4 are %v and %v wide", ours, bare)
	}
}
