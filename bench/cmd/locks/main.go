// Command locks measures our locks against those of other libraries, on redis-servers that it runs itself, and says which
// targets they reach.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if len(os.Args) > 1 && os.Args[1] == childArgument {
		if err := serve(ctx, os.Stdin, os.Stdout); err != nil {
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
	flags := flag.NewFlagSet("locks", flag.ContinueOnError)
	flags.SetOutput(errOut)
	run := flags.String("run", ".", "measure the scenarios whose name matches this `regexp`: A1 A16 A128 B1 B128 C1 C4 Dstop Dkill")
	reps := flags.Int("reps", 12, "rounds without contention; half as many with it, and of outages")
	duration := flags.Duration("duration", 250*time.Millisecond, "the slice of one contestant in a round without contention; "+
		"six times as long with it, twice as long in outages")
	quick := flags.Bool("quick", false, "a third of the rounds: for a first look, not for figures to quote")
	flags.StringVar(&jsonFile, "json", "", "also write all figures to this `file`")
	if err := flags.Parse(args); err != nil {
		return nil, "", err
	}
	if flags.NArg() > 0 || *reps < 1 || *duration < 10*time.Millisecond {
		return nil, "", errors.New("want no arguments, -reps of at least 1 and -duration of at least 10ms")
	}
	if b.run, err = regexp.Compile(*run); err != nil {
		return nil, "", err
	}
	b.reps = *reps
	if *quick {
		b.reps = max(*reps/3, 1)
	}
	b.contendedReps, b.outageReps = max(b.reps/2, 1), max(b.reps/2, 1)
	b.slice, b.contendedSlice, b.outageSlice = *duration, 6**duration, 2**duration
	return b, jsonFile, nil
}

// report measures and writes the figures; also those of a run that was broken off.
func (b *bench) report(ctx context.Context, args []string, out io.Writer, jsonFile string) (err error) {
	dir, err := os.MkdirTemp("", "bench-locks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	tables, runErr := b.all(ctx, dir)
	version, err := b.version(dir)
	if err != nil {
		return errors.Join(runErr, err)
	}
	s := setting(context.WithoutCancel(ctx), args, version)
	missed := write(out, s, tables)
	fmt.Fprintf(out, "\n%d targets missed; %v\n", missed, time.Since(began).Round(time.Second))
	if jsonFile != "" {
		err = writeJSON(jsonFile, s, tables)
	}
	return errors.Join(runErr, err)
}

// version asks a server that is started for this alone: those of the run have ended.
func (b *bench) version(dir string) (string, error) {
	ctx := context.Background()
	s, err := server.Start(ctx, dir)
	if err != nil {
		return "", err
	}
	defer s.Kill()
	return server.Version(ctx, s.Probe())
}

func writeJSON(file string, s Setting, tables []*Table) error {
	for _, t := range tables {
		for _, row := range t.Rows {
			for _, values := range row.Values {
				for i, v := range values {
					if math.IsNaN(v) || math.IsInf(v, 0) { // JSON has neither
						values[i] = -1
					}
				}
			}
		}
	}
	data, err := json.MarshalIndent(map[string]any{"setting": s, "tables": tables}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}
