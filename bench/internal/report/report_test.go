package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/measure"
)

func TestATargetIsJudgedByItsMedian(t *testing.T) {
	t.Parallel()
	table := &Table{Name: "T"}
	table.Row("a").Add("x", 3)
	table.Row("b").Add("x", 2)
	table.AtMost(1.5, "at the bound", table.Against("x", "a", "b"))
	table.AtLeast(2, "below it", table.Against("x", "a", "b"))
	table.AtLeast(2, "of one who is not there", table.Against("x", "a", "c"))
	table.AtMost(2, "not a number", []float64{math.NaN()})
	if len(table.Targets) != 3 || !table.Targets[0].Met() || table.Targets[1].Met() || table.Targets[2].Met() {
		t.Errorf("got %+v", table.Targets)
	}
	r := Report{Sections: []*Section{{Tables: []*Table{table}}}}
	if all, missed := r.Missed(); all != 3 || missed != 2 {
		t.Errorf("%d of %d targets are missed, want 2 of 3", missed, all)
	}
}

func TestRatiosAreThoseOfEachRound(t *testing.T) {
	t.Parallel()
	table := &Table{Columns: []string{"x"}}
	for _, v := range []float64{1, 10, 100} { // the machine gets faster; the ratio stays
		table.Row("ours").Add("x", 3*v)
		table.Row("theirs").Add("x", v)
	}
	table.Compare("x theirs", "x", "theirs")
	table.Compare("x nobody", "x", "nobody")
	if got := table.Row("ours").Spread("x theirs"); got != (measure.Spread{Median: 3, Low: 3, High: 3}) {
		t.Errorf("the ratio is %+v, want 3 in each round", got)
	}
	if !slices.Equal(table.Columns, []string{"x", "x theirs"}) {
		t.Errorf("the columns are %q", table.Columns)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.0041: "0.0041", 0.05: "0.05", 1: "1.00", 12.34: "12.3", 123.4: "123", 1234: "1\u2009234", 1234567: "1\u2009234\u2009567", -1234: "-1\u2009234",
		math.Inf(1): "∞", 1000: "1\u2009000",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is shown as %q, want %q", v, got, want)
		}
	}
	if got := Number(math.NaN()); got != "-" {
		t.Errorf("no number is shown as %q", got)
	}
	if got := WithQuartiles(measure.Spread{Median: 2, Low: 1, High: 3}); got != "2.00 [1.00 3.00]" {
		t.Errorf("got %q", got)
	}
	if got := WithQuartiles(measure.Spread{Median: 2, Low: 2, High: 2}); got != "2.00" {
		t.Errorf("got %q", got)
	}
}

func sample() *Report {
	table := &Table{Name: "K1", Title: "one | key", Columns: []string{"rate", "made up", "none"}, Notes: []string{"a note"}}
	for _, v := range []float64{1, 2, 3} {
		table.Row("ours").Add("rate", v)
	}
	table.Row("ours").Note = "it slept"
	table.Row("theirs").Set("made up", "> 20 s")
	table.AtLeast(1, "is met", []float64{2})
	table.AtLeast(5, "is missed", []float64{2})
	return &Report{Reps: 5, Took: "1m0s", Sections: []*Section{{
		Name: "locks", Title: "Locks, at last", Text: "How to read it.", Tables: []*Table{table},
		Charts: []*Chart{{File: "rates", Title: "Rates", Groups: []Group{BarsOf("K1", table, "rate")}}},
	}}}
}

func TestTheReportShowsWhatWasMissedFirst(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sample().Markdown(&out, "plots"); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	last := -1
	for _, part := range []string{
		"at least 5 rounds", "1 of 2 are met", "| **missed** | K1 | is missed | ≥ 5.00 | 2.00 |", "| met | K1 | is met |",
		"- [Locks, at last](#locks-at-last)", "## Locks, at last", "How to read it.", "![Rates](plots/rates.svg)",
		"**K1**: one | key", "|  | rate | made up | none |", "| ours | 2.00 [1.50 2.50] |  |  |", "| theirs |  | > 20 s |  |", "- a note", "- ours: it slept",
	} {
		at := strings.Index(text, part)
		if at < 0 {
			t.Fatalf("the report lacks %q:\n%s", part, text)
		}
		if at < last {
			t.Errorf("%q comes too early", part)
		}
		last = at
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
		if err := sample().Markdown(&full{left}, "plots"); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
}

func TestJSONHasEveryRoundAndNullForWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Sections[0].Tables[0].Row("ours").Add("rate", math.NaN())
	r.Sections[0].Tables[0].Row("ours").Add("rate", math.Inf(1))
	data, err := json.Marshal(r)
	if err != nil || !bytes.Contains(data, []byte(`"rate":[1,2,3,null,null]`)) || !bytes.Contains(data, []byte(`"Met":false,"Got":[2,2,2]`)) {
		t.Errorf("got %s, %v", data, err)
	}
}

// rects returns the heights of an SVG's rectangles by their colour, and fails when it is not well-formed.
func rects(t *testing.T, c *Chart) map[string][]float64 {
	t.Helper()
	var out bytes.Buffer
	if err := c.SVG(&out); err != nil {
		t.Fatal(err)
	}
	heights := map[string][]float64{}
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return heights
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			of := map[string]string{}
			for _, a := range e.Attr {
				of[a.Name.Local] = a.Value
			}
			h, err := strconv.ParseFloat(of["height"], 64)
			if err != nil {
				t.Fatal(err)
			}
			heights[of["fill"]] = append(heights[of["fill"]], h)
		}
	}
}

func TestBarsAreAsLongAsTheirValues(t *testing.T) {
	t.Parallel()
	of := func(v float64) measure.Spread { return measure.Spread{Median: v, Low: v, High: v} }
	c := &Chart{Title: "a <b> & c", Groups: []Group{
		{"one", []Bar{{Name: "ours", Spread: of(100)}, {Name: "theirs & others", Spread: of(25)}}},
		{"two", []Bar{{Name: "ours", Spread: of(50)}, {Name: "theirs & others", Spread: of(math.NaN())}}},
	}}
	got := rects(t, c)
	ours, theirs := got[palette[0]], got[palette[1]]
	if len(ours) != 3 || len(theirs) != 2 { // the first of each is in the legend
		t.Fatalf("the bars are %v", got)
	}
	if math.Abs(ours[1]/ours[2]-2) > 0.01 || math.Abs(ours[1]/theirs[1]-4) > 0.01 {
		t.Errorf("bars of 100, 50 and 25 are %v, %v and %v high", ours[1], ours[2], theirs[1])
	}
}

func TestLinesAreWellFormedWhateverTheValues(t *testing.T) {
	t.Parallel()
	for _, values := range [][]float64{nil, {0}, {1}, {1, 10, 1e6}, {math.NaN(), 3}, {math.Inf(1), 2}, {-1, 2}, {1e-9, 1e9}} {
		for _, log := range []bool{false, true} {
			c := &Chart{LogX: log, LogY: log, XLabel: "x", YLabel: "y", Target: 2}
			s := Series{Name: "ours"}
			for i, v := range values {
				s.Points = append(s.Points, Point{X: float64(i) * 10, Spread: measure.Spread{Median: v, Low: v / 2, High: 2 * v}})
			}
			c.Series = []Series{s}
			rects(t, c)
			var out bytes.Buffer
			if err := c.SVG(&out); err != nil || strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
				t.Errorf("%v, log %v: %v\n%s", values, log, err, &out)
			}
		}
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	t.Parallel()
	for most := 0.001; most < 1e9; most *= 1.37 {
		s := newScale([]float64{most}, false, 0, 100)
		ticks := s.ticks()
		if n := len(ticks); n < 4 || n > 12 || ticks[0] != 0 || ticks[n-1] < most*0.999 {
			t.Errorf("up to %v the ticks are %v", most, ticks)
		}
	}
	if got := newScale([]float64{3, 40_000}, true, 0, 100).ticks(); !slices.Equal(got, []float64{1, 10, 100, 1000, 10_000, 100_000}) {
		t.Errorf("the logarithmic ticks are %v", got)
	}
}
