package results_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestSpreadIsMedianAndQuartiles(t *testing.T) {
	t.Parallel()
	got := results.Values{5, 1, math.NaN(), 4, 2, 3}.Spread()
	if want := (results.Spread{Median: 3, Low: 2, High: 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, c := range []struct {
		values results.Values
		median float64
	}{{results.Values{1, 2}, 1.5}, {results.Values{1, 2, math.Inf(1)}, 2}} {
		if got := c.values.Median(); got != c.median {
			t.Errorf("the median of %v is %v", c.values, got)
		}
	}
	if got := results.Values(nil).Median(); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestRatiosAreThoseOfEachRound(t *testing.T) {
	t.Parallel()
	got := results.Ratios(results.Values{2, 30, 5, 1}, results.Values{1, 10, math.NaN(), 0})
	if len(got) != 4 || got[0] != 2 || got[1] != 3 || !math.IsNaN(got[2]) || !math.IsNaN(got[3]) {
		t.Errorf("got %v, want 2 and 3", got)
	}
	if got := results.Ratios(results.Values{1, 2}, results.Values{0, math.NaN()}); got != nil {
		t.Errorf("there are no ratios: %v", got)
	}
	table := &results.Table{}
	for _, v := range []float64{1, 10, 100} { // the machine gets faster; the ratio stays
		table.Add("ours", "x", 3*v)
		table.Add("theirs", "x", v)
	}
	if got := table.Against("x", "ours", "theirs"); !slices.Equal(got, results.Values{3, 3, 3}) {
		t.Errorf("got %v, want 3 in each round", got)
	}
	table.Add("ours", "y", 6)
	if got := table.Of("ours", "y ÷ x"); !slices.Equal(got, results.Values{2}) {
		t.Errorf("got %v, want 2", got)
	}
	if got := table.Against("x", "ours", "another"); got != nil {
		t.Errorf("against one who is not there: %v", got)
	}
}

func TestPercentileIsOneOfTheTimes(t *testing.T) {
	t.Parallel()
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 1: 200} {
		if got := results.PercentileIn(time.Millisecond, times, p); got != want {
			t.Errorf("p%v is %v, want %v", 100*p, got, want)
		}
	}
	if got := results.PercentileIn(time.Millisecond, nil, 0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	table := &results.Table{Name: "K1", Title: "one key"}
	for _, v := range []float64{1, 2, math.NaN(), math.Inf(1)} {
		table.Add("ours", "rate", v)
	}
	table.Row("ours").Note = "it slept"
	r := &results.Results{Rounds: 4, Took: "1m0s", Tables: []*results.Table{table}}
	r.Setting.Machine = "two cores"
	file := filepath.Join(t.TempDir(), "run.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(data, []byte(`"rate":[1,2,null,null]`)) {
		t.Fatalf("got %s, %v", data, err)
	}
	got, err := results.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	again := got.Table("K1")
	if got.Rounds != 4 || got.Took != "1m0s" || got.Setting.Machine != "two cores" || again == nil || again.Title != "one key" ||
		!slices.Equal(again.Columns, []string{"rate"}) || again.Row("ours").Note != "it slept" {
		t.Fatalf("got %+v", got)
	}
	if values := again.Of("ours", "rate"); len(values) != 4 || values[1] != 2 || !math.IsNaN(values[2]) || !math.IsNaN(values[3]) {
		t.Errorf("got %v", values)
	}
}

func TestALaterRunReplacesItsTables(t *testing.T) {
	t.Parallel()
	run := func(command string, value float64, names ...string) *results.Results {
		r := &results.Results{Rounds: 3, Setting: results.Setting{Command: command, Commit: "c", Versions: []string{"go-redis", command}}}
		for _, name := range names {
			table := &results.Table{Name: name}
			table.Add("ours", "x", value)
			r.Tables = append(r.Tables, table)
		}
		return r
	}
	r := run("whole", 1, "A1", "S1")
	r.Put(run("part", 2, "S1", "S64"))
	for name, want := range map[string]float64{"A1": 1, "S1": 2, "S64": 2} {
		if got := r.Table(name).Of("ours", "x").Median(); got != want {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	if got := r.Runs(); len(r.Tables) != 3 || len(got) != 1 || !slices.Equal(got["`part`, 3 rounds, commit c"], []string{"S1", "S64"}) {
		t.Errorf("%d tables, of the other runs %q", len(r.Tables), got)
	}
	if got := r.Setting.Versions; !slices.Equal(got, []string{"go-redis", "whole", "part"}) || r.Setting.Command != "whole" {
		t.Errorf("the setting is %+v", r.Setting)
	}
}

func TestAFileThatIsNoResultIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + " is not there"} {
		if r, err := results.Read(name); err == nil || r != nil {
			t.Errorf("got %v, %v", r, err)
		}
	}
}

func TestASettingNamesCommandMachineAndVersions(t *testing.T) {
	t.Parallel()
	s := results.NewSetting(t.Context(), "make bench", "a/module/that/is/not/there")
	if s.Command != "make bench" || s.Redis == "" || s.Go != runtime.Version() || s.Machine == "" || s.Commit == "" {
		t.Errorf("got %+v", s)
	}
	if len(s.Versions) != 0 {
		t.Errorf("got the versions %q", s.Versions)
	}
}
