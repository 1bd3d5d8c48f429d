// Command bench measures railtoken against others, on redis-servers that it runs itself, and writes one report of it.
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

	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/setting"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if len(os.Args) > 1 && os.Args[1] == locks.ChildArgument {
		if err := locks.Serve(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
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
		return 2
	}
	if err := o.measure(ctx, out); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

// options are what the command line says.
type options struct {
	env       report.Env
	dir, json string
	shown     string // the command line, for the report
}

func parse(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	o.env.Say = func(format string, args ...any) { fmt.Fprintf(errOut, "==> "+format+"\n", args...) }
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	run := flags.String("run", ".", "measure the sections and scenarios whose name matches this `regexp`")
	flags.IntVar(&o.env.Reps, "reps", 5, "rounds, in each of which every contestant has its turn")
	flags.IntVar(&o.env.Scale, "scale", 100, "how many percent of the work to do")
	quick := flags.Bool("quick", false, "two rounds and a fifth of the work: for a first look, not for figures to quote")
	flags.StringVar(&o.env.Orders, "orders", "", "read the orders from this CSV `file`; generate them when empty")
	flags.StringVar(&o.dir, "out", "", "write benchmarks.md and its plots to this `directory`, not to the standard output")
	flags.StringVar(&o.json, "json", "", "also write the figures of every round to this `file`")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *quick {
		o.env.Reps, o.env.Scale = min(o.env.Reps, 2), min(o.env.Scale, 20)
	}
	if flags.NArg() > 0 || o.env.Reps < 1 || o.env.Scale < 1 || o.env.Scale > 100 {
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
		case "orders", "out", "json":
		default:
			given = append(given, fmt.Sprintf("-%s=%v", f.Name, f.Value))
		}
	})
	if len(given) > 0 {
		command += fmt.Sprintf(" ARGS=%q", strings.Join(given, " "))
	}
	return command
}

// measure runs the parts and writes the report; also that of a run which was broken off.
func (o *options) measure(ctx context.Context, out io.Writer) (err error) {
	if o.env.Dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.env.Dir)
	began := time.Now()
	version, err := redisVersion(ctx, o.env.Dir)
	if err != nil {
		return err
	}
	r := &report.Report{Reps: o.env.Reps, Setting: setting.New(ctx, o.shown, version, modules...)}
	var runErr error
	for _, p := range parts {
		sections, err := p.measure(ctx, o.env)
		r.Sections = append(r.Sections, sections...)
		if err != nil {
			runErr = errors.Join(runErr, fmt.Errorf("%s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.Took = time.Since(began).Round(time.Second).String()
	all, missed := r.Missed()
	o.env.Say("%d of %d targets missed; %s", missed, all, r.Took)
	return errors.Join(runErr, o.write(r, out))
}

func (o *options) write(r *report.Report, out io.Writer) error {
	if o.json != "" {
		data, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			err = os.WriteFile(o.json, append(data, '\n'), 0o600)
		}
		if err != nil {
			return err
		}
	}
	if o.dir == "" {
		return r.Markdown(out, report.Name)
	}
	return r.WriteFiles(o.dir)
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
