package results_test

import (
	"math"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestEveryTargetIsJudgedByAWholeRun(t *testing.T) {
	t.Parallel()
	r, err := results.Read("../../../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	judged := map[results.Target]bool{}
	for _, v := range results.Judge(r) {
		judged[v.Target] = true
	}
	for _, target := range results.Targets {
		// In an outage, redsync and rueidislock get nothing done in a second, so that there may be no ratio.
		mayLackARatio := target.Figure == "outage pairs/s" && strings.HasPrefix(target.Base, "r")
		if !judged[target] && !mayLackARatio {
			t.Errorf("%+v was not judged", target)
		}
	}
	if len(results.Targets) < 100 {
		t.Errorf("the table has %d targets", len(results.Targets))
	}
}

func TestATargetIsJudgedByItsMedian(t *testing.T) {
	t.Parallel()
	for p50, want := range map[float64]bool{1.15: true, 1.16: false, 0.5: true, math.NaN(): false} {
		v := judge(t, "A1", "p50 µs ÷ floor", map[string]map[string]results.Values{
			"railtoken": {"p50 µs": {9, p50, 0.1}}, "floor": {"p50 µs": {1, 1, 1}},
		})
		if math.IsNaN(p50) { // a round without a value counts for nothing
			want = false
		}
		if v == nil || v.Met != want {
			t.Errorf("p50 of %v is judged as %+v", p50, v)
		}
	}
	if v := judge(t, "A1", "p50 µs ÷ floor", map[string]map[string]results.Values{"railtoken": {"p50 µs": {9}}}); v != nil {
		t.Errorf("without the floor it is judged: %+v", v)
	}
}

func TestOursIsJudgedByTheQuickestByHand(t *testing.T) {
	t.Parallel()
	table := fill("K1", map[string]map[string]results.Values{
		"railtoken": {"tasks/s": {100}}, "bare": {"tasks/s": {1000}}, "sleep-retry": {"tasks/s": {50}}, "redsync": {"tasks/s": {80}},
		"semaphore": {"tasks/s": {500}}, "asynq retry": {"tasks/s": {200}, "finished": {1, 0}},
	})
	table.Row("semaphore").Note = "tasks of one key OVERLAPPED 1 times"
	for _, v := range results.Judge(&results.Results{Tables: []*results.Table{table}}) {
		if strings.Contains(v.What, "by hand") && (v.Got.Median != 1.25 || !strings.HasSuffix(v.What, "redsync")) {
			t.Errorf("got %+v", v)
		}
	}
}

func TestGrowthIsTheLargestByTheSmallestOfARound(t *testing.T) {
	t.Parallel()
	rows := map[string]map[string]results.Values{
		"1": {"µs": {10, 30, 7, 4}}, "10": {"µs": {20, 10, math.NaN()}}, "100": {"µs": {15, 20, 8, 8}},
	}
	const what = "the most expensive: µs ÷ the cheapest"
	if v := judge(t, "growth-keys", what, rows); v == nil || v.Got.Median != 2.5 || v.Met {
		t.Errorf("got %+v", v)
	}
	if v := judge(t, "growth-keys", what, map[string]map[string]results.Values{"1": rows["1"]}); v != nil {
		t.Errorf("one size grows by %+v", v)
	}
}

func fill(name string, rows map[string]map[string]results.Values) *results.Table {
	table := &results.Table{Name: name}
	for row, columns := range rows {
		for column, values := range columns {
			for _, v := range values {
				table.Add(row, column, v)
			}
		}
	}
	return table
}

// judge returns the verdict on one target, nil when there is none.
func judge(t *testing.T, table, what string, rows map[string]map[string]results.Values) *results.Verdict {
	t.Helper()
	for _, v := range results.Judge(&results.Results{Tables: []*results.Table{fill(table, rows)}}) {
		if v.What == what {
			return &v
		}
	}
	return nil
}
