package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	Enqueued   int
	Done       int      // the effect is in the ledger
	Refused    int      // in the archive, with the conflict as the reason
	Superseded int      // in the archive, because the order was cancelled
	Unfinished int      // of a run that was stopped
	Lost       int      // neither done nor refused nor still to run
	Example    string   // a reason for a refusal
	Notes      []string // on the first unfinished tasks
	Stopped    error    // why the run was ended early; nil when it was not

	Balance  balance
	Overlaps int // that the handlers of this process saw
	Met      met
	Seen     seen
	Fenced   int64
	Again    int64

	Duration  time.Duration
	Elsewhere bool // the work was done by other processes, which report its conflicts
	NoLock    bool
}

// mostNotes is how many unfinished tasks a report describes.
const mostNotes = 5

// note records what is known of a task that has not ended.
func (r *report) note(what, taskID, known string) {
	if len(r.Notes) < mostNotes {
		r.Notes = append(r.Notes, what+": "+taskID+": "+known)
	}
}

// add includes what the workers of this process have seen.
func (r *report) add(c *crew) {
	r.Met, r.Seen = c.conflicts.met(time.Now()), c.tracker.seen()
	r.Overlaps = r.Seen.Overlaps
	r.Fenced, r.Again = c.handlers.fenced.Load(), c.handlers.again.Load()
}

// overlaps returns how often two tasks worked on a key at the same time. The handlers of this process saw it as it happened. The
// ledger covers other processes too, but only tasks that finished.
func (r *report) overlaps() int { return max(r.Overlaps, r.Balance.Overlaps) }

// faults returns what went wrong, a sentence each.
func (r *report) faults() []string {
	var faults []string
	for _, f := range []struct {
		n    int
		text string
	}{
		{r.overlaps(), "%d times a task worked on a key at the same time as another task"},
		{int(r.Balance.Lost), "%d updates are lost: the counters lack what the ledger says was added"},
		{int(r.Balance.Doubled), "%d updates were applied twice: the counters have more than the ledger says was added"},
		{r.Lost, "%d tasks are lost: neither done nor refused with a reason"},
	} {
		if f.n > 0 {
			faults = append(faults, fmt.Sprintf(f.text, f.n))
		}
	}
	return faults
}

// print writes the table, the explanations that go with it, and the verdict.
func (r *report) print(out io.Writer) {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\t\n", padded(name), value) }
	gap := func() { fmt.Fprintf(t, "\t\t\n") }
	row("tasks enqueued", r.Enqueued)
	row("done", r.Done)
	row("refused, with a reason", r.Refused)
	if r.Superseded > 0 {
		row("stopped by a cancellation", r.Superseded)
	}
	if r.Unfinished > 0 {
		row("not reached", r.Unfinished)
	}
	gap()
	if !r.Elsewhere && !r.NoLock {
		row("conflicts: waited in the slot", r.Met.InSlot)
		row("           parked", r.Met.Parked)
		row("           failed fast", r.Met.FailFast)
		if r.Met.Bound > 0 {
			row("           archived at a bound", r.Met.Bound)
		}
		row("wait p50", readable(r.Met.Durations.percentile(50)))
		row("wait p99", readable(r.Met.Durations.percentile(99)))
		row("longest wait", readable(r.Met.Durations.percentile(100)))
		gap()
	}
	row("overlaps", r.overlaps())
	row("lost updates", r.Balance.Lost)
	row("double effects", r.Balance.Doubled)
	row("tasks lost", r.Lost)
	if r.Fenced > 0 {
		row("writes refused by a fencing token", r.Fenced)
	}
	if r.Again > 0 {
		row("second runs that found their effect", r.Again)
	}
	gap()
	row("duration", readable(r.Duration))
	row("tasks/s", fmt.Sprintf("%.0f", r.rate()))
	if least := idealOf(r.Seen.Holds); least.Tasks > 0 && !r.NoLock {
		row("ideal: the work of the busiest key", readable(least.Work))
	}
	_ = t.Flush() // a strings.Builder takes everything
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(out, strings.TrimRight(line, " \n"))
	}

	if r.Example != "" {
		fmt.Fprintf(out, "\nEach of the %d refused tasks is in the archive with its reason, for example\n  %s\n", r.Refused, r.Example)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(r.Notes, "\n"))
	}
	if r.Stopped != nil {
		fmt.Fprintf(out, "\nStopped before the end: %v.\n", r.Stopped)
	}
	r.printVerdict(out)
}

func (r *report) printVerdict(out io.Writer) {
	faults := r.faults()
	if len(faults) == 0 && r.Stopped == nil {
		fmt.Fprintf(out, "\nOK: no overlap, no lost update, no double effect, no task lost.\n")
		return
	}
	if len(faults) == 0 {
		fmt.Fprintf(out, "\nUp to here: no overlap, no lost update, no double effect, no task lost.\n")
		return
	}
	fmt.Fprintf(out, "\nWRONG:\n")
	for _, fault := range faults {
		fmt.Fprintf(out, "  %s\n", fault)
	}
}

func (r *report) rate() float64 {
	if r.Duration <= 0 {
		return 0
	}
	return float64(r.Done+r.Refused+r.Superseded) / r.Duration.Seconds()
}

// nameWidth is the width of the table's first column. tabwriter would align it to the right, like the numbers.
const nameWidth = 36

func padded(name string) string {
	return name + strings.Repeat(" ", max(nameWidth-len(name), 0))
}

// readable returns a duration in the unit that suits its size.
func readable(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
