// Command bench measures railtoken against others, on redis-servers that it runs itself, and writes one report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/bench/internal/cost"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/recovery"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// The exit statuses beside 0.
const (
	statusFailed = 1
	statusUsage  = 2
	statusMissed = 3 // with -check: a target was missed
)

// parts are the measurements, in their order.
var parts = []func(context.Context, *measure.Env) error{locks.Measure, tasks.Measure, cost.Measure, recovery.Measure}

// children are what other runs of this program do, by their argument.
var children = map[string]func(io.Reader, io.WriteCloser) error{
	locks.ChildArgument:    locks.Serve,
	cost.ChildArgument:     func(in io.Reader, out io.WriteCloser) error { return cost.Serve(in, out) },
	recovery.ChildArgument: func(in io.Reader, out io.WriteCloser) error { return recovery.Serve(in, out) },
}

// modules are the libraries whose versions the report names.
var modules = []string{
	"github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4",
	"github.com/bsm/redislock", "github.com/redis/rueidis", "go.etcd.io/etcd/client/v3", "github.com/jackc/pgx/v5",
}

func main() {
	logging.Disable() // go-redis would write of each connection that fails: here servers are ended on purpose
	if serve := children[strings.Join(os.Args[1:], " ")]; serve != nil {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(statusFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
		return statusUsage
	}
	r, err := o.results(ctx)
	if r != nil && (err == nil || o.into == "") { // a part that failed leaves the whole as it is
		if o.release != "" && err == nil {
			err = results.Keep(r, o.dir, o.release)
		}
		if o.dir == "" {
			err = errors.Join(err, results.WriteTables(out, r))
		} else if err == nil || o.release == "" {
			err = errors.Join(err, results.WriteReport(r, o.dir))
		}
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
		return statusFailed
	}
	verdicts := results.Judge(r)
	missed := results.Missed(verdicts)
	o.env.Report("%d of %d targets missed; %s", len(missed), len(verdicts), r.Took)
	if o.check && len(missed) > 0 {
		if err := results.WriteMissed(errOut, r); err != nil {
			fmt.Fprintln(errOut, err)
		}
		return statusMissed
	}
	return 0
}

// options are what the command line says.
type options struct {
	env             measure.Env
	from, into, dir string
	release         string // the version that keeps the figures; "" when none does
	check           bool
	shown           string // the command line, for the report
}

func parse(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	o.env.Say = func(format string, args ...any) { fmt.Fprintf(errOut, "==> "+format+"\n", args...) }
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	run := flags.String("run", ".", "measure the scenarios whose name or group matches this `regexp`")
	flags.IntVar(&o.env.Rounds, "reps", 5, "rounds, in each of which every contestant has its turn")
	flags.IntVar(&o.env.Scale, "scale", 100, "how many percent of the work to do")
	quick := flags.Bool("quick", false, "two rounds and a fifth of the work: for a first look, not for figures to quote")
	flags.StringVar(&o.env.Orders, "orders", "", "read the orders from this CSV `file`; generate them when empty")
	flags.StringVar(&o.from, "from", "", "measure nothing: read the figures of this `file`, as -out writes it")
	flags.StringVar(&o.into, "into", "", "put what is measured in place of the same tables of this `file`, with their own setting")
	flags.StringVar(&o.dir, "out", "", "write the report, its figures and plots to this `directory`; print tables when empty")
	flags.StringVar(&o.release, "release", "", "with -out: keep the figures as those of this `version`, for the history of the report")
	flags.BoolVar(&o.check, "check", false, "exit with status 3 when a target is missed")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *quick {
		o.env.Rounds, o.env.Scale = min(o.env.Rounds, 2), min(o.env.Scale, 20)
	}
	if o.release != "" && o.dir == "" {
		return nil, errors.New("-release needs -out, where the history is")
	}
	if flags.NArg() > 0 || o.env.Rounds < 1 || o.env.Scale < 1 || o.env.Scale > 100 {
		return nil, errors.New("want no arguments, -reps of at least 1 and -scale from 1 to 100")
	}
	o.shown = shown(flags, o.env.Orders)
	var err error
	o.env.Run, err = regexp.Compile(*run)
	return o, err
}

// shown returns the command that a reader would give. In which directories files are says nothing to one.
func shown(flags *flag.FlagSet, orders string) string {
	command, given := "make bench", []string{}
	if orders != "" {
		command += " ORDERS=" + filepath.Base(orders)
	}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"orders", "into", "out", "check", "release"}, f.Name) {
			given = append(given, fmt.Sprintf("-%s=%v", f.Name, f.Value))
		}
	})
	if len(given) > 0 {
		command += fmt.Sprintf(" ARGS=%q", strings.Join(given, " "))
	}
	return command
}

// results reads the figures of an earlier run, or measures. A run that is broken off has figures too.
func (o *options) results(ctx context.Context) (*results.Results, error) {
	if o.from != "" {
		return results.Read(o.from)
	}
	var err error
	if o.env.Dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.env.Dir)
	began := time.Now()
	r := &results.Results{Rounds: o.env.Rounds, Setting: results.NewSetting(ctx, o.shown, modules...)}
	o.env.Results = r
	for _, part := range parts {
		if ctx.Err() == nil {
			err = errors.Join(err, part(ctx, &o.env))
		}
	}
	r.Took = time.Since(began).Round(time.Second).String()
	if o.into == "" || err != nil {
		return r, err
	}
	whole, err := results.Read(o.into)
	if err == nil {
		whole.Put(r)
	}
	return whole, err
}
