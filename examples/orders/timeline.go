package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

//go:embed timeline.html
var timelineSource string

var timelinePage = template.Must(template.New("timeline").Parse(timelineSource))

const (
	mostLanes = 20
	mostWaits = 10
)

// page is what the timeline page shows. Times are milliseconds since the first event.
type page struct {
	Title    string   `json:"title"`
	Facts    []fact   `json:"facts"`
	Faults   []string `json:"faults"`
	Length   float64  `json:"length"`
	Keys     int      `json:"keys"` // how many there are, shown or not
	Lanes    []lane   `json:"lanes"`
	Longest  []bar    `json:"-"` // waits
	NoLock   bool     `json:"noLock"`
	Recorded string   `json:"recorded"`
}

// fact is one figure at the top of the page.
type fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Bad   bool   `json:"bad"`
}

// lane shows the life of one key.
type lane struct {
	Key       string `json:"key"`
	Conflicts int    `json:"conflicts"`
	Overlaps  int    `json:"overlaps"`
	Holds     []bar  `json:"holds"`
	Waits     []bar  `json:"waits"`
	HoldRows  int    `json:"holdRows"`
	WaitRows  int    `json:"waitRows"`
}

// bar is a hold or a wait. Its row keeps it clear of the others: there is one row of holds unless tasks overlap.
type bar struct {
	Task     string   `json:"task"`
	Type     string   `json:"type"`
	Began    float64  `json:"a"`
	Ended    float64  `json:"b"`
	Row      int      `json:"row"`
	Waited   []waited `json:"waited,omitempty"`   // of a hold: the waits before it, for any key
	Overlap  bool     `json:"overlap,omitempty"`  // of a hold
	Key      string   `json:"key,omitempty"`      // of a wait, as all below: what the task waits for
	Holders  []string `json:"holders,omitempty"`  // the tasks that held the key meanwhile, the first of them first
	Refusals int      `json:"refusals,omitempty"` // how often the task was refused the key
	Ending   ending   `json:"ending,omitempty"`
	Refused  bool     `json:"refused,omitempty"`
}

// newPage returns the page of a report.
func newPage(rep *report, id runID, title string, noLock bool) page {
	p := page{Title: title, Faults: rep.faults(), Keys: len(rep.Seen.Holds), NoLock: noLock}
	fact := func(name string, value any, bad bool) {
		p.Facts = append(p.Facts, fact{Name: name, Value: fmt.Sprint(value), Bad: bad})
	}
	fact("tasks done", rep.Done, false)
	if !noLock {
		fact("conflicts", rep.Met.total(), false)
		if least := idealOf(rep.Seen.Holds); least.Tasks > 0 && rep.Duration > 0 {
			fact("duration", readable(rep.Duration), false)
			fact("ideal: "+id.business(least.Key)+" alone", readable(least.Work), false)
		}
		fact("wait p50", readable(rep.Met.Durations.percentile(50)), false)
		fact("wait p99", readable(rep.Met.Durations.percentile(99)), false)
	}
	fact("overlaps", rep.overlaps(), rep.overlaps() > 0)
	fact("lost updates", rep.Balance.Lost, rep.Balance.Lost > 0)
	fact("tasks lost", rep.Lost, rep.Lost > 0)
	first, last := rep.bounds()
	p.Length = sinceMS(first, last)
	p.Recorded = first.Format("2006-01-02 15:04:05")
	before := waitsByTask(rep.Met.Waits, id)
	for _, key := range rep.hottest(mostLanes) {
		p.Lanes = append(p.Lanes, newLane(rep, id.business(key), key, first, before))
	}
	p.Longest = longestWaits(p.Lanes, mostWaits)
	return p
}

// newLane returns the lane of one key. before is what each task waited for.
func newLane(rep *report, name, key string, first time.Time, before map[string][]waited) lane {
	l := lane{Key: name, Conflicts: rep.Met.Refusals[key]}
	for _, h := range rep.Seen.Holds[key] {
		l.Holds = append(l.Holds, bar{
			Task: h.TaskID, Type: h.Type, Began: sinceMS(first, h.Began), Ended: sinceMS(first, h.Ended),
			Waited: before[h.TaskID], Overlap: h.Overlap,
		})
		if h.Overlap {
			l.Overlaps++
		}
	}
	l.HoldRows = stack(l.Holds)
	for _, w := range rep.Met.Waits[key] {
		b := bar{
			Task: w.TaskID, Type: w.Type, Began: sinceMS(first, w.Began), Ended: sinceMS(first, w.Ended),
			Key: name, Refusals: w.Refusals, Ending: w.Ending, Refused: w.Ending == endedRefused,
		}
		b.Holders = holders(l.Holds, b)
		l.Waits = append(l.Waits, b)
	}
	l.WaitRows = stack(l.Waits)
	return l
}

// stack sorts bars by their beginning, puts each in the first row that is free, and returns the number of rows.
func stack(bars []bar) int {
	slices.SortFunc(bars, func(a, b bar) int { return cmp.Compare(a.Began, b.Began) })
	var ends []float64 // of each row
	for i := range bars {
		row := slices.IndexFunc(ends, func(end float64) bool { return end <= bars[i].Began })
		if row < 0 {
			row = len(ends)
			ends = append(ends, 0)
		}
		bars[i].Row, ends[row] = row, bars[i].Ended
	}
	return len(ends)
}

// bounds returns the times of the first and the last event of a run.
func (r *report) bounds() (first, last time.Time) {
	see := func(began, ended time.Time) {
		if first.IsZero() || began.Before(first) {
			first = began
		}
		if ended.After(last) {
			last = ended
		}
	}
	for _, holds := range r.Seen.Holds {
		for _, h := range holds {
			see(h.Began, h.Ended)
		}
	}
	for _, waits := range r.Met.Waits {
		for _, w := range waits {
			see(w.Began, w.Ended)
		}
	}
	return first, last
}

// total returns how many conflicts had an outcome.
func (o outcomes) total() int { return o.InSlot + o.Parked + o.FailFast + o.Bound }

// sinceMS returns the milliseconds between two times, to the microsecond.
func sinceMS(from, to time.Time) float64 { return float64(to.Sub(from).Microseconds()) / 1000 }

// render writes the page as HTML in one file.
func (p page) render(out io.Writer) error { return timelinePage.Execute(out, p) }

// writeTimeline writes the page to the file that the options name, and prints the name. It does nothing if no handler ran here.
func (p *program) writeTimeline(rep *report, r *run) error {
	if p.Timeline == "" || len(rep.Seen.Holds) == 0 {
		return nil
	}
	title := "strategy " + strategyName(r.Config.Strategy)
	if r.NoLock {
		title = "no locks"
	}
	page := newPage(rep, r.ID, title, r.NoLock)
	if err := replaceFile(p.Timeline, page.render); err != nil {
		return fmt.Errorf("orders: write the timeline: %w: give another place with -timeline", err)
	}
	fmt.Fprintf(p.out, "Timeline of the %d hottest keys: %s\n", len(page.Lanes), p.Timeline)
	return nil
}

// replaceFile writes a file atomically: a reader sees the old or the new content. A symbolic link of that name is replaced.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".orders-timeline-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it was not renamed
	}
	return err
}
