package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a run has come.
type progress interface {
	// show is called often, with how many tasks have ended until now.
	show(ended int)
	// close is called once, at the end.
	close()
}

// newProgress returns a bar on a terminal, and prints a line now and then elsewhere.
func newProgress(out io.Writer, total int) progress {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return barProgress{progressbar.NewOptions(total,
			progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("tasks"), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("tasks"), progressbar.OptionSetWidth(40),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
	}
	return &lineProgress{out: out, total: total, last: time.Now()}
}

type barProgress struct{ bar *progressbar.ProgressBar }

// If the bar cannot be drawn, the run goes on.
func (p barProgress) show(ended int) { _ = p.bar.Set(ended) }
func (p barProgress) close()         { _ = p.bar.Finish() }

// lineEvery is how often a line is written.
const lineEvery = 3 * time.Second

type lineProgress struct {
	out   io.Writer
	total int
	last  time.Time
}

func (p *lineProgress) show(ended int) {
	if now := time.Now(); now.Sub(p.last) >= lineEvery {
		p.last = now
		fmt.Fprintf(p.out, "%d of %d tasks\n", ended, p.total)
	}
}

func (p *lineProgress) close() {}
