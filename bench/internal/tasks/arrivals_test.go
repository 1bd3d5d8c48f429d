package tasks

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/worker"
)

func TestArrivalsComeAtTheirRateWhateverBecomesOfThem(t *testing.T) {
	t.Parallel()
	const rate, span = 1000, 10 * time.Second
	s := Scenario{}.arriving(rate, span, 7, mixed)
	if n := len(s.Tasks); n < 9500 || n > 10_500 { // five standard deviations
		t.Errorf("%d tasks arrive in %v", n, span)
	}
	at := func(i int) time.Duration { return s.Tasks[i].After }
	longest := time.Duration(0)
	for i := 1; i < len(s.Tasks); i++ {
		if at(i) < at(i-1) {
			t.Fatalf("task %d arrives at %v, one before it at %v", i, at(i), at(i-1))
		}
		longest = max(longest, at(i)-at(i-1))
	}
	if at(0) < lead || s.last() >= lead+span || longest < 4*time.Second/rate {
		t.Errorf("they arrive from %v to %v, at most %v apart", at(0), s.last(), longest)
	}
	if again := (Scenario{}).arriving(rate, span, 7, mixed); !slices.Equal(again.Tasks, s.Tasks) {
		t.Error("the same seed gives other times")
	}
	if few := (Scenario{}).arriving(0.001, time.Millisecond, 1, mixed); len(few.Tasks) != 1 {
		t.Errorf("at the least rate %d tasks arrive", len(few.Tasks))
	}
}

func TestALatencyCountsFromTheArrivalThatWasIntended(t *testing.T) {
	t.Parallel()
	s, got := Scenario{}, Result{Took: 100 * time.Millisecond}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, one := range []struct {
		aside               bool
		after, began, ended int
	}{{false, 10, 12, 15}, {true, 10, 50, 60}, {false, 40, 0, 0}, {false, 30, 60, 0}, {false, 20, 25, 27}} {
		s = s.with(Task{After: ms(one.after), Aside: one.aside})
		got.Began, got.At = append(got.Began, ms(one.began)), append(got.At, ms(one.ended))
	}
	l := latenciesOf(s, got)
	if want := []time.Duration{ms(2), ms(5), ms(30), ms(60)}; !slices.Equal(l.start, want) {
		t.Errorf("to the start: %v, want %v", l.start, want)
	}
	if want := []time.Duration{ms(5), ms(7), ms(60), ms(70)}; !slices.Equal(l.end, want) {
		t.Errorf("to the end: %v, want %v", l.end, want)
	}
	table := &results.Table{}
	l.addTo(table, "x", "50 %: ")
	for column, want := range map[string]float64{"50 %: start p50 ms": 5, "50 %: start p99 ms": 60, "50 %: end p99 ms": 70} {
		if got := table.Of("x", column); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %v", column, got, want)
		}
	}
}

func TestTheFirstArrivalsDoNotCount(t *testing.T) {
	t.Parallel()
	s := Scenario{}
	got := Result{}
	for n := range 20 { // the later tasks arrive first
		s = s.with(Task{After: time.Duration(20-n) * time.Second})
		got.Began, got.At = append(got.Began, s.Tasks[n].After+time.Duration(n)), append(got.At, time.Minute)
	}
	if l := latenciesOf(s, got); len(l.start) != 18 || l.start[17] != 17 {
		t.Errorf("got %v", l.start)
	}
}

func TestTheSteadyRateLeavesTheEndsOut(t *testing.T) {
	t.Parallel()
	got := Result{}
	for n := range 100 {
		at := time.Second + time.Duration(n)*time.Millisecond // a thousand a second
		switch {
		case n < 5:
			at = time.Duration(n+1) * time.Millisecond // before a pause
		case n >= 85:
			at = time.Hour + time.Duration(n) // one after another, much later
		}
		got.At = append(got.At, at, 0) // every other task was not done
	}
	if rate := steadyRate(got); math.Abs(rate-1000) > 1 {
		t.Errorf("got %v", rate)
	}
	if rate := steadyRate(Result{At: []time.Duration{0, time.Second}}); !math.IsNaN(rate) {
		t.Errorf("of one task: %v", rate)
	}
}

func TestTheFloodArrivesBesideTheQuietTenant(t *testing.T) {
	t.Parallel()
	s := withAFlood(10 * time.Second)
	keys, flood := map[string]bool{}, 0
	for n, task := range s.Tasks {
		if task.N != n {
			t.Fatalf("task %d has the number %d", n, task.N)
		}
		if task.Aside {
			flood++
		} else if keys[task.Key] {
			t.Errorf("two tasks of the quiet tenant want %s", task.Key)
		}
		keys[task.Key] = true
	}
	quiet := len(s.Tasks) - flood
	if quiet < 2700 || quiet > 3300 || flood < 4*quiet || len(keys) != quiet+floodKeys || len(s.withoutAside().Tasks) != quiet {
		t.Errorf("%d quiet tasks and %d of the flood have %d keys", quiet, flood, len(keys))
	}
	got := Result{At: make([]time.Duration, len(s.Tasks))}
	got.At[0], got.At[1], got.At[quiet] = time.Second, 3*time.Second, time.Second
	if n := doneBy(s, got, 2*time.Second); n != 1 {
		t.Errorf("%v tasks were done by then", n)
	}
}

func TestTasksTellTheirKeysUnlessTheseAreFound(t *testing.T) {
	t.Parallel()
	at, err := server.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Kill)
	for n, c := range bothWays {
		job := Job{Redis: worker.Redis{Addr: at.Addr()}}
		if err := enqueue(t.Context(), job, c, []Task{{N: n, Key: "k", Queue: DefaultQueue}}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		told, err := at.Probe().HExists(t.Context(), fmt.Sprint("asynq:{default}:t:", n), "railtoken:keys").Result()
		if want := c.Name == RailtokenRecorded.Name; err != nil || told != want {
			t.Errorf("%s: the keys are recorded: %v, want %v (%v)", c.Name, told, want, err)
		}
	}
}
