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
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/cost"
	"github.com/railtoken/railtoken/bench/internal/growth"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/stock"
	"github.com/railtoken/railtoken/bench/internal/targets"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// The exit statuses beside 0.
const (
	statusFailed = 1
	statusUsage  = 2
	statusMissed = 3 // with -check: a target was missed
)

// parts are the measurements, in their order.
var parts = []struct {
	name    string
	measure func(context.Context, *measure.Env) error
}{{"locks", locks.Measure}, {"tasks", tasks.Measure}, {"stock", stock.Measure}, {"growth", growth.Measure}, {"cost", cost.Measure}}

// modules are the libraries whose versions the report names.
var modules = []string{
	"github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4",
	"github.com/bsm/redislock", "github.com/redis/rueidis", "go.etcd.io/etcd/client/v3", "github.com/jackc/pgx/v5",
}

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if len(os.Args) > 1 && os.Args[1] == locks.ChildArgument {
		if err := locks.Serve(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(statusFailed)
		}
		return
	}
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// quiet keeps go-redis from writing to stderr each time that a connection fails: here servers are ended on purpose.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}

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
		err = errors.Join(err, o.write(r, out))
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
		return statusFailed
	}
	verdicts := targets.Judge(r)
	missed := targets.Missed(verdicts)
	o.env.Report("%d of %d targets missed; %s", len(missed), len(verdicts), r.Took)
	if o.check && len(missed) > 0 {
		if err := report.Missed(errOut, r); err != nil {
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
	flags.BoolVar(&o.check, "check", false, "exit with status 3 when a target is missed")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *quick {
		o.env.Rounds, o.env.Scale = min(o.env.Rounds, 2), min(o.env.Scale, 20)
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
	command := "make bench"
	if orders != "" {
		command += " ORDERS=" + filepath.Base(orders)
	}
	var given []string
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "orders", "into", "out", "check":
		default:
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
	version, err := redisVersion(ctx, o.env.Dir)
	if err != nil {
		return nil, err
	}
	r := &results.Results{Rounds: o.env.Rounds, Setting: results.NewSetting(ctx, o.shown, version, modules...)}
	o.env.Results = r
	for _, p := range parts {
		if failed := p.measure(ctx, &o.env); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, failed))
		}
		if ctx.Err() != nil {
			break
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

func (o *options) write(r *results.Results, out io.Writer) error {
	if o.dir == "" {
		return report.Tables(out, r)
	}
	return report.Write(r, o.dir)
}

// redisVersion asks a server that is started for this alone.
func redisVersion(ctx context.Context, dir string) (string, error) {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return "", err
	}
	defer s.Kill()
	return s.Version(ctx)
}
