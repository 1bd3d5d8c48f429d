package traces

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	into = flag.String("into", "", "`folder` for the recorded runs")
	runs = flag.Int("runs", 4, "how `many` runs are recorded")
	seed = flag.Uint64("seed", 1, "`seed` of the first run")
	only = flag.String("only", "", "`setting/plot` to record alone")
	bad  = flag.Bool("faulty", false, "the scripts have a fault: tasks need not end, and what they do need not be known")
)

// Each run is of another setting, plot and seed.
func TestRunsAreRecorded(t *testing.T) {
	n, most := 0, uint64(*runs*len(settings)*len(plots))
	for s := *seed; n < *runs; s++ {
		if s == *seed+most {
			t.Fatalf("there is no run %q", *only)
		}
		setting, plot := settings[int(s)%len(settings)], plots[int(s)/len(settings)%len(plots)]
		name := setting.name + "/" + plot.name
		if !strings.HasPrefix(name, *only) && *only != "" {
			continue
		}
		if plot.in != "" && plot.in != setting.name {
			continue
		}
		n++
		t.Run(fmt.Sprintf("%s/%d", name, s), func(t *testing.T) {
			t.Parallel()
			recordOne(t, setting, plot, s)
		})
	}
}

// patience is how long a run with a fault in a script may take, whose tasks need not end.
const patience = 5 * time.Second

// recordOne records one run.
func recordOne(t *testing.T, s setting, plot plot, seed uint64) {
	t.Helper()
	p := newPlay(t, s, seed)
	p.warmUp()
	plot.play(p)
	var stuck error
	within := 2 * limit
	if *bad {
		within = patience
	}
	if !p.ended(within) {
		stuck = errStuck
	}
	lines := p.recorder.end(t)
	events, err := derive(p.names, lines, p.recorder.workerOf)
	if err = errors.Join(err, stuck); err != nil && !*bad {
		t.Error(err)
	}
	if *into == "" {
		return
	}
	base := filepath.Join(*into, fmt.Sprintf("%s.%s.%d", s.name, plot.name, seed))
	mask := plot.mask | mayCrash | mayExpire | mayFail | mayGoBack | mayForward
	write(t, filepath.Join(*into, s.name+".switches"), s.switches)
	write(t, base+".trace", text(events, mask, spent(events)+plot.most))
	write(t, base+".lines", told(lines))
	var b strings.Builder
	for i := range events {
		fmt.Fprintf(&b, "%3d %v\n", i, &events[i])
	}
	write(t, base+".events", b.String())
}

// told returns what Redis has executed, in short.
func told(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %s %.200q\n", l.at.Format("05.000000"), l.from, l.args)
	}
	return b.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
