package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
)

// Setting is where and with what the figures were measured.
type Setting struct {
	Command, Commit, Machine, Go, Redis string
	Versions                            []string
}

func setting(ctx context.Context, args []string, redis string) Setting {
	return Setting{
		Command:  strings.Join(append([]string{"scripts/bench-locks.sh"}, args...), " "),
		Commit:   commit(ctx),
		Machine:  machine(),
		Go:       runtime.Version(),
		Redis:    redis,
		Versions: versions(),
	}
}

// commit names the revision of the working directory, and says when it has changes that are not in it.
func commit(ctx context.Context) string {
	revision, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(revision))
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output(); err != nil || len(changes) > 0 {
		name += " with uncommitted changes"
	}
	return name
}

func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s/%s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

// versions of the libraries that are measured.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []string
	for _, module := range info.Deps {
		switch module.Path {
		case "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis":
			found = append(found, module.Path+" "+module.Version)
		}
	}
	return found
}

// write prints the tables, then the targets of all.
func write(out io.Writer, s Setting, tables []*Table) (missed int) {
	fmt.Fprintf(out, "command  %s\ncommit   %s\nmachine  %s\nversions %s, redis-server %s, %s\n",
		s.Command, s.Commit, s.Machine, s.Go, s.Redis, strings.Join(s.Versions, ", "))
	fmt.Fprintf(out, "\nEach figure is the median of the rounds, with the quartiles in brackets; x is the median of the ratios within a round.\n")
	for _, t := range tables {
		writeTable(out, t)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	title := "\nTARGETS\n"
	for _, t := range tables {
		for _, target := range t.Targets {
			fmt.Fprint(w, title)
			title = ""
			verdict, relation := "PASS", "<="
			if !target.Met() {
				verdict = "MISS"
				missed++
			}
			if target.Least {
				relation = ">="
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s %v\t%s\n", verdict, t.Name, target.What, relation, target.Bound, withQuartiles(target.Got))
		}
	}
	_ = w.Flush()
	return missed
}

func writeTable(out io.Writer, t *Table) {
	fmt.Fprintf(out, "\n%s  %s\n", t.Name, t.Title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	bases, column := basesOf(t)
	fmt.Fprintf(w, "\t%s", strings.Join(t.Columns, "\t"))
	for _, base := range bases {
		fmt.Fprintf(w, "\tx %s", base)
	}
	if slices.Contains(t.Columns, outage+p50) {
		fmt.Fprint(w, "\tx p50\tx p99")
	}
	fmt.Fprintln(w)
	for _, row := range t.Rows {
		fmt.Fprint(w, row.Contestant)
		for _, c := range t.Columns {
			fmt.Fprintf(w, "\t%s", withQuartiles(measure.NewSpread(row.Values[c])))
		}
		for _, base := range bases {
			fmt.Fprintf(w, "\t%s", number(measure.NewSpread(t.against(column, row.Contestant, base)).Median))
		}
		if slices.Contains(t.Columns, outage+p50) {
			fmt.Fprintf(w, "\t%s\t%s", withQuartiles(measure.NewSpread(row.ratio(outage+p50, healthy+p50))),
				withQuartiles(measure.NewSpread(row.ratio(outage+p99, healthy+p99))))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	for _, row := range t.Rows {
		if row.Note != "" {
			fmt.Fprintf(out, "  %s: %s\n", row.Contestant, row.Note)
		}
	}
}

// basesOf says with whom the others of an uncontended table are compared, and in which column.
func basesOf(t *Table) (bases []string, column string) {
	for _, base := range []string{contestant.NameFloor, contestant.NameRedislock, contestant.NameRedsync, contestant.NameRueidislock} {
		if t.has(base) && slices.Contains(t.Columns, rate) {
			bases = append(bases, base)
		}
	}
	if slices.Contains(t.Columns, p50) {
		return bases, p50
	}
	return bases, rate
}

func withQuartiles(s measure.Spread) string {
	return fmt.Sprintf("%s [%s %s]", number(s.Median), number(s.Low), number(s.High))
}

// number has three digits, or as many as stand before the point.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
