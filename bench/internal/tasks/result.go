package tasks

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// Result is what a contestant reached in one run.
type Result struct {
	// Tasks were to be done, without those [Task.Aside]; Done of them were.
	Tasks, Done int
	// AsideDone is how many of the tasks aside were done.
	AsideDone int
	// Finished says that every task was done before the time was up.
	Finished bool
	// Took is the time from the start of the server to the end of the last handler, or until the time was up.
	Took time.Duration
	// Overlaps counts the times that work on a key began while another task worked on it, Again those that a task was
	// done twice.
	Overlaps, Again int
	// Parked counts the runs that ended with the task parked, for contestants that park.
	Parked int
	// Runs is how often a worker ran each task, sorted; 0 when it never came to it.
	Runs []int
	// Commands is how many commands the contestant sent to Redis, NaN when they were not counted.
	Commands float64
	// Began and At are when each task was begun first, and when it was done, by its place, since the start of the server;
	// 0 when it was not.
	Began, At []time.Duration
	// Err is an error that should not have been, or "".
	Err string
}

// enough is the share of tasks that must have been parked for the commands of a conflict to mean something.
const enough = 0.05

// Rate returns the tasks done in a second.
func (r Result) Rate() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Done) / r.Took.Seconds()
}

// AtMost returns the share of the tasks that were run at most so many times; NaN when there are no tasks.
func (r Result) AtMost(runs int) float64 {
	n, _ := slices.BinarySearch(r.Runs, runs+1)
	return float64(n) / float64(len(r.Runs))
}

// PerTask returns the commands for each task that was done; NaN or infinite when there are none.
func (r Result) PerTask() float64 { return r.Commands / float64(r.Done) }

// PerConflict returns the commands for each time that a task was parked: those beyond what as many tasks cost that meet
// no conflict. It is NaN when hardly any was parked, or a run did not come to its end.
func (r Result) PerConflict(uncontended Result) float64 {
	if float64(r.Parked) < enough*float64(r.Tasks) || r.Parked == 0 || !r.Finished || !uncontended.Finished {
		return math.NaN()
	}
	return (r.Commands - uncontended.PerTask()*float64(r.Done)) / float64(r.Parked)
}

// addTo adds the result of a round. alone is that of tasks without conflicts.
func (r Result) addTo(t *results.Table, c Contestant, s Scenario, alone Result) {
	add := func(column string, value float64) { t.Add(c.Name, column, value) }
	add("tasks/s", r.Rate())
	add("of ideal", r.Rate()/(float64(r.Tasks)/s.Ideal().Seconds()))
	add("finished", map[bool]float64{true: 1}[r.Finished])
	add("≤2 runs", r.AtMost(2))
	if c.Parks && !math.IsNaN(r.Commands) {
		add("commands/conflict", r.PerConflict(alone))
	}
	note(t.Row(c.Name), r, c)
}

// note says in the row what must not be, and only that.
func note(row *results.Row, r Result, c Contestant) {
	faults := []string{r.Err}
	if c.Name != Bare.Name && r.Overlaps > 0 {
		faults = append(faults, fmt.Sprintf("tasks of one key OVERLAPPED %d times", r.Overlaps))
	}
	if r.Again > 0 {
		faults = append(faults, fmt.Sprintf("%d tasks were done TWICE", r.Again))
	}
	for _, fault := range faults {
		if fault != "" && !strings.Contains(row.Note, fault) {
			row.Note = strings.TrimPrefix(row.Note+"; "+fault, "; ")
		}
	}
}
