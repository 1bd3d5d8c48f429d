// Package profile tells where the processor time goes while locks are taken: in the clients by function, and in the server by command.
package profile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	callers = 128
	length  = 2 * time.Second
	shown   = 15 // functions
	share   = "% of the client's CPU"
	perPair = "us per pair"
)

// Measure profiles our lock on one node and on five nodes while 128 callers take and release keys that nobody else wants.
func Measure(ctx context.Context, env report.Env) ([]*report.Section, error) {
	section := &report.Section{
		Name: "profile", Title: "Where the time goes",
		Text: fmt.Sprintf("CPU profiles of the client (pprof) while %d callers take and release keys that nobody else wants, and the time of the servers by "+
			"their own account, for one pair. One round: these tell what to mend, not how fast it is.", callers),
	}
	for _, s := range []struct {
		name  string
		nodes int
		kind  contestant.Kind
	}{{"P1", 1, contestant.Single}, {"P5", 5, contestant.Redlock}} {
		if !env.Run.MatchString(section.Name) && !env.Run.MatchString(s.name) {
			continue
		}
		env.Say("%s: a profile of locks on %d nodes", s.name, s.nodes)
		t := &report.Table{Name: s.name, Title: fmt.Sprintf("%d callers, nodes: %d", callers, s.nodes), Columns: []string{share, perPair}}
		section.Tables = append(section.Tables, t)
		if err := measureOne(ctx, env, t, s.kind, s.nodes); err != nil {
			return []*report.Section{section}, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if len(section.Tables) == 0 {
		return nil, nil
	}
	return []*report.Section{section}, nil
}

func measureOne(ctx context.Context, env report.Env, t *report.Table, kind contestant.Kind, nodes int) error {
	var servers []*server.Server
	defer func() {
		for _, s := range servers {
			s.Kill()
		}
	}()
	var addrs []string
	for range nodes {
		s, err := server.Start(ctx, env.Dir)
		if err != nil {
			return err
		}
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	if kind.Aged > 0 { // the guard lets nobody in before
		env.Say("  the servers are to be %v old", kind.Aged)
		select {
		case <-time.After(kind.Aged + 2*time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	locks, err := kind.Open(addrs)
	if err != nil {
		return err
	}
	defer locks.Close()
	load := measure.Load{Callers: callers, For: length * time.Duration(env.Scale) / 100}
	pair := func(i int) error { return locks.Pair(ctx, fmt.Sprint("profile:", i)) }
	_, left := measure.Pairs(load, pair) // a warm-up
	left()
	before, err := serverTime(ctx, servers)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(env.Dir, t.Name+".pprof"))
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	sample, left := measure.Pairs(load, pair)
	left()
	pprof.StopCPUProfile()
	after, err := serverTime(ctx, servers)
	if err != nil {
		return err
	}
	if sample.Done == 0 {
		return fmt.Errorf("no pair was done: %w", sample.Err)
	}
	top, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount", strconv.Itoa(shown), "-unit", "ms", file.Name()).Output()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
	functions, total, err := parseTop(string(top))
	if err != nil {
		return err
	}
	fill(t, functions, total, after-before, sample.Done)
	return nil
}

// function is where time was spent, in the function itself.
type function struct {
	name  string
	spent time.Duration
}

// fill adds the functions that take the most time, all of the client, and the servers.
func fill(t *report.Table, functions []function, total, servers time.Duration, pairs int) {
	micros := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(pairs) }
	for _, f := range functions {
		row := t.Row("`" + f.name + "`")
		row.Add(share, 100*float64(f.spent)/float64(max(total, 1)))
		row.Add(perPair, micros(f.spent))
	}
	t.Row("the client, all of it").Add(perPair, micros(total))
	t.Row("the servers").Add(perPair, micros(servers))
	t.Notes = append(t.Notes, fmt.Sprintf("%d pairs; GOMAXPROCS is %d", pairs, runtime.GOMAXPROCS(0)))
}

// parseTop reads what go tool pprof -top prints in milliseconds.
func parseTop(text string) (functions []function, total time.Duration, err error) {
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, "% of "); ok && total == 0 {
			if total, err = millis(strings.Fields(rest)[0]); err != nil {
				return nil, 0, err
			}
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[0], "ms") {
			continue
		}
		spent, err := millis(fields[0])
		if err != nil {
			return nil, 0, err
		}
		functions = append(functions, function{shortName(fields[5]), spent})
	}
	if total == 0 || len(functions) == 0 {
		return nil, 0, fmt.Errorf("go tool pprof prints no functions: %q", text)
	}
	return functions, total, nil
}

func millis(text string) (time.Duration, error) {
	ms, err := strconv.ParseFloat(strings.TrimSuffix(text, "ms"), 64)
	return time.Duration(ms * float64(time.Millisecond)), err
}

// shortName leaves out the directory of a function's package.
func shortName(function string) string {
	return function[strings.LastIndex(function, "/")+1:]
}

// serverTime is the processor time that the servers have taken.
func serverTime(ctx context.Context, servers []*server.Server) (total time.Duration, err error) {
	for _, s := range servers {
		info, err := s.Probe().InfoMap(ctx, "cpu").Result()
		if err != nil {
			return 0, err
		}
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			var seconds float64
			if _, err := fmt.Sscan(info["CPU"][field], &seconds); err != nil {
				return 0, fmt.Errorf("%s of %s: %w", field, s.Addr(), err)
			}
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total, nil
}
