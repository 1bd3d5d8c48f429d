// Command tasks measures what asynq workers get done when their tasks want the same keys: package worker against locks written by hand,
// asynq's own retry and asynq without any lock, on redis-servers that it runs itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/setting"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quiet keeps go-redis from writing to stderr: what goes wrong is an error of whoever asked.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	b, jsonFile, err := parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
		return 2
	}
	if err := b.report(ctx, args, out, jsonFile); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

func parse(args []string, errOut io.Writer) (b *bench, jsonFile string, err error) {
	b = &bench{say: func(format string, args ...any) { fmt.Fprintf(errOut, "==> "+format+"\n", args...) }}
	flags := flag.NewFlagSet("tasks", flag.ContinueOnError)
	flags.SetOutput(errOut)
	run := flags.String("run", ".", "measure the scenarios whose name matches this `regexp`: K1 K4 K20 orders sellers wake")
	only := flags.String("only", ".", "measure the contestants whose name matches this `regexp`, besides bare")
	flags.IntVar(&b.reps, "reps", 5, "rounds, in each of which every contestant has its turn")
	flags.DurationVar(&b.limits.Bound, "bound", 20*time.Second, "how long one run of a contestant may take")
	flags.IntVar(&b.limits.Retries, "retries", 25, "how often asynq may retry a task; 25 is its own default")
	flags.IntVar(&b.scale, "scale", 100, "how many percent of the tasks to do")
	flags.IntVar(&b.wakes, "wakes", 40, "wake-ups of each kind in a round")
	flags.StringVar(&b.orders, "orders", "", "read the orders from this CSV `file`; generate them when empty")
	quick := flags.Bool("quick", false, "two rounds: for a first look, not for figures to quote")
	flags.StringVar(&jsonFile, "json", "", "also write the result of every run to this `file`")
	if err := flags.Parse(args); err != nil {
		return nil, "", err
	}
	if *quick {
		b.reps = min(b.reps, 2)
	}
	if flags.NArg() > 0 || b.reps < 1 || b.limits.Bound < 100*time.Millisecond || b.limits.Retries < 0 || b.scale < 1 || b.scale > 100 || b.wakes < 1 {
		return nil, "", errors.New("want no arguments, -reps and -wakes of at least 1, -bound of at least 100ms, -retries of at least 0 and -scale from 1 to 100")
	}
	if b.run, err = regexp.Compile(*run); err != nil {
		return nil, "", err
	}
	if b.only, err = regexp.Compile(*only); err != nil {
		return nil, "", err
	}
	b.scenarios, err = scenarios(b.orders, b.scale)
	return b, jsonFile, err
}

// report measures and writes the figures; also those of a run that was broken off.
func (b *bench) report(ctx context.Context, args []string, out io.Writer, jsonFile string) (err error) {
	dir, err := os.MkdirTemp("", "bench-tasks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	version, err := redisVersion(ctx, dir)
	if err != nil {
		return err
	}
	s := setting.New(ctx, strings.Join(append([]string{"scripts/bench-tasks.sh"}, shown(args)...), " "), version,
		"github.com/hibiken/asynq", "github.com/redis/go-redis/v9")
	tables, wakes, runErr := b.all(ctx, dir)
	write(out, s, b, tables, wakes)
	fmt.Fprintf(out, "\n%v\n", time.Since(began).Round(time.Second))
	if jsonFile != "" {
		err = writeJSON(jsonFile, s, tables, wakes)
	}
	return errors.Join(runErr, err)
}

// shown leaves out the directories of files: they say nothing to a reader.
func shown(args []string) []string {
	var short []string
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case joined && isFile(name):
			arg = name + "=" + filepath.Base(value)
		case i > 0 && isFile(args[i-1]):
			arg = filepath.Base(arg)
		}
		short = append(short, arg)
	}
	return short
}

func isFile(flag string) bool {
	name := strings.TrimLeft(flag, "-")
	return name == "orders" || name == "json"
}

// redisVersion asks a server that is started for this alone.
func redisVersion(ctx context.Context, dir string) (string, error) {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return "", err
	}
	defer s.Kill()
	return server.Version(ctx, s.Probe())
}

func writeJSON(file string, s setting.Setting, tables []*table, wakes []*wake) error {
	data, err := json.MarshalIndent(map[string]any{"setting": s, "tables": tables, "wakes": wakes}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// scenarios returns all of them, in the order in which they run.
func scenarios(ordersFile string, percent int) ([]tasks.Scenario, error) {
	const seed = 1
	part := func(n int) int { return max(n*percent/100, 2) }
	orders, from := tasks.GenerateOrders(part(5000), seed), "generated "
	if ordersFile != "" {
		var err error
		if orders, err = tasks.ReadOrdersFile(ordersFile); err != nil {
			return nil, err
		}
		from = "real "
	}
	const work = 20 * time.Millisecond
	byOrder, bySeller := tasks.ByOrder(orders, part(3000), work, seed), tasks.BySeller(orders, part(3000), work, seed)
	byOrder.Title, bySeller.Title = from+byOrder.Title, from+bySeller.Title
	return []tasks.Scenario{
		tasks.Repeat("K1", 1, part(500), 5*time.Millisecond, seed),
		tasks.Repeat("K4", 4, part(250), work, seed),
		tasks.Repeat("K20", 20, part(100), 5*time.Millisecond, seed),
		byOrder, bySeller,
	}, nil
}
