package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func goodReport() *report {
	return &report{
		Enqueued: 600, Done: 590, Refused: 10, Duration: 3 * time.Second, Example: "audit:o1: key is held",
		Met: met{outcomes: outcomes{InSlot: 51, Parked: 90, FailFast: 10}, Durations: durations{71 * time.Millisecond, 1717 * time.Millisecond}},
	}
}

func TestReportPrintsTheTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	goodReport().print(&out)
	const want = `
  tasks enqueued                            600
  done                                      590
  refused, with a reason                     10

  conflicts: waited in the slot              51
             parked                          90
             failed fast                     10
  wait p50                              71.0 ms
  wait p99                               1.72 s
  longest wait                           1.72 s

  overlaps                                    0
  lost updates                                0
  double effects                              0
  tasks lost                                  0

  duration                               3.00 s
  tasks/s                                   200

Each of the 10 refused tasks is in the archive with its reason, for example
  audit:o1: key is held

OK: no overlap, no lost update, no double effect, no task lost.
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("printed%swant%s", got, want)
	}
}

func TestReportFailsOnAnyFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil  func(*report)
		status int
		want   string
	}{
		"nothing":                 {func(*report) {}, exitOK, "OK:"},
		"overlap here":            {func(r *report) { r.Overlaps = 2 }, exitWrong, "2 times a task worked"},
		"overlap in the ledger":   {func(r *report) { r.Balance.Overlaps = 3 }, exitWrong, "3 times a task worked"},
		"lost update":             {func(r *report) { r.Balance.Lost = 4 }, exitWrong, "4 updates are lost"},
		"double effect":           {func(r *report) { r.Balance.Doubled = 5 }, exitWrong, "5 updates were applied twice"},
		"lost task":               {func(r *report) { r.Lost = 1; r.note("lost", "t", "gone") }, exitWrong, "lost: t: gone"},
		"timeout":                 {func(r *report) { r.Stopped = errTimeout }, exitWrong, "longer than -timeout"},
		"interrupt":               {func(r *report) { r.Stopped = context.Canceled; r.Unfinished = 7 }, exitInterrupted, "not reached"},
		"interrupt and lost task": {func(r *report) { r.Stopped = context.Canceled; r.Lost = 1 }, exitWrong, "1 tasks are lost"},
		"a producer's error":      {func(r *report) { r.Stopped = errors.New("no Redis") }, exitWrong, "Stopped before the end: no Redis."},
		"fenced":                  {func(r *report) { r.Fenced = 3 }, exitOK, "refused by a fencing token"},
		"found again":             {func(r *report) { r.Again = 3 }, exitOK, "second runs that found their effect"},
		"bound":                   {func(r *report) { r.Met.Bound = 3 }, exitOK, "archived at a bound"},
	} {
		r := goodReport()
		test.spoil(r)
		var out strings.Builder
		r.print(&out)
		if status := r.status(); status != test.status || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: status %d, want %d, and no %q in\n%s", name, status, test.status, test.want, &out)
		}
		if strings.Contains(out.String(), "OK:") != (test.status == exitOK) {
			t.Errorf("%s: the verdict does not fit status %d:\n%s", name, test.status, &out)
		}
	}
}

func TestReportDescribesAFewLostTasksOnly(t *testing.T) {
	t.Parallel()
	r := goodReport()
	for range 100 {
		r.note("lost", "t", "gone")
	}
	if len(r.Notes) != mostNotes {
		t.Errorf("%d notes", len(r.Notes))
	}
}

func TestReportShowsTheIdealOfALockedRun(t *testing.T) {
	t.Parallel()
	r := goodReport()
	r.Seen.Holds = map[string][]hold{"k": {{Began: at(0), Ended: at(2400)}}}
	var out strings.Builder
	r.print(&out)
	if !strings.Contains(out.String(), "ideal: the work of the busiest key     2.40 s") {
		t.Errorf("printed\n%s", &out)
	}
	out.Reset()
	r.NoLock = true
	r.print(&out)
	if strings.Contains(out.String(), "ideal") || strings.Contains(out.String(), "conflicts:") {
		t.Errorf("printed\n%s", &out)
	}
}

func TestReportOmitsConflictsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	r := goodReport()
	r.Elsewhere = true
	var out strings.Builder
	r.print(&out)
	if strings.Contains(out.String(), "conflicts:") || strings.Contains(out.String(), "wait p50") {
		t.Errorf("printed\n%s", &out)
	}
}
