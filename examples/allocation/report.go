package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// printFailed writes the orders that could not be allocated.
func printFailed(out io.Writer, failed []failure) {
	if len(failed) == 0 {
		fmt.Fprintln(out, "Every order was allocated.")
		return
	}
	fmt.Fprintf(out, "%d orders could not be allocated:\n", len(failed))
	printTable(out, failed)
}

// mostRows is how many rows of a table are written.
const mostRows = 10

func printTable(out io.Writer, failed []failure) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  ORDER\tREFERENCE\tREASON")
	for _, f := range failed[:min(len(failed), mostRows)] {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", f.Order, f.Reference, f.Reason)
	}
	_ = t.Flush() // a table that cannot be written is no reason to end
	if more := len(failed) - mostRows; more > 0 {
		fmt.Fprintf(out, "  and %d more\n", more)
	}
}

// check compares the database with what it must have, and returns what is wrong.
func (w *warehouse) check(ctx context.Context, orders []order, stock map[string]int) (faults []string, err error) {
	failed := map[string]bool{}
	for _, f := range w.failed() {
		failed[f.Order] = true
	}
	left := map[string]int{}
	maps.Copy(left, stock)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for i, o := range orders {
		revisions := 0
		if i%4 == 0 {
			revisions++ // its audit
		}
		if i >= 1 && i < min(5, len(orders)) {
			revisions++ // the request
		}
		if !failed[o.ID] {
			revisions++
			for _, t := range o.Pieces {
				left[t.Seller] -= t.Pieces
			}
		}
		switch n, err := w.db.count(ctx, `SELECT revision FROM orders WHERE id = ?`, o.ID); {
		case err != nil:
			return nil, err
		case n != revisions:
			fault("order %s was changed %d times, want %d", o.ID, n, revisions)
		}
	}
	for seller, pieces := range left {
		switch n, err := w.db.count(ctx, `SELECT pieces FROM stock WHERE id = ?`, seller); {
		case err != nil:
			return nil, err
		case n != pieces || n < 0:
			fault("seller %s has %d pieces left, want %d", seller, n, pieces)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.met) > 0 {
		fault("two tasks met in %d orders, among them %s", len(w.met), w.met[0])
	}
	return faults, nil
}

// progress shows how many orders are allocated.
type progress interface {
	show(allocated int)
	close()
}

// newProgress returns a bar on a terminal, and nothing elsewhere.
func newProgress(out io.Writer, total int) progress {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return barProgress{progressbar.NewOptions(total, progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription("orders"), progressbar.OptionShowCount(), progressbar.OptionSetWidth(40),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
	}
	return noProgress{}
}

type barProgress struct{ bar *progressbar.ProgressBar }

// If the bar cannot be drawn, the run goes on.
func (p barProgress) show(allocated int) { _ = p.bar.Set(allocated) }
func (p barProgress) close()             { _ = p.bar.Finish() }

type noProgress struct{}

func (noProgress) show(int) {}
func (noProgress) close()   {}
