// Command ledger moves money between accounts while workers are stopped for longer than their locks last, and killed. It prints
// how many cents each way of locking loses.
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/fence"
)

// Exit statuses.
const (
	exitOK    = 0
	exitWrong = 1 // a strong mode has lost money, a weak one has not, or a run failed
	exitUsage = 2
)

func main() {
	if mayBeWorker() {
		return
	}
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the command line.
type options struct {
	plan
	postgres, mariadb, plot string
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("ledger", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.IntVar(&o.Transfers, "transfers", 10_000, "transfers per mode, at least 100")
	flags.IntVar(&o.Accounts, "accounts", 100, "accounts, at least 10")
	flags.IntVar(&o.Workers, "workers", 6, "worker processes, at least 3")
	flags.IntVar(&o.Stops, "stops", 60, "how often a worker is stopped for longer than the TTL")
	flags.IntVar(&o.Kills, "kills", 20, "how often a worker is killed")
	flags.DurationVar(&o.TTL, "ttl", time.Second, "TTL of the locks, at least 1s")
	flags.StringVar(&o.postgres, "postgres", "", "`URL` of a PostgreSQL database for all five modes; its tables railtoken_ledger_* are dropped")
	flags.StringVar(&o.mariadb, "mariadb", "", "data `source` (user:password@tcp(host:port)/name) of a MariaDB or MySQL database, likewise")
	flags.StringVar(&o.plot, "plot", "", "`file` for an SVG image of the results")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("ledger takes no arguments, but got %q", flags.Args())
	case o.Transfers < 100, o.Accounts < 10, o.Workers < 3, o.Stops < 1, o.Kills < 0, o.TTL < time.Second:
		err = errors.New("a flag is too small: see ledger -help")
	}
	return o, err
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(errOut, err)
		return exitUsage
	}
	dir, err := os.MkdirTemp("", "ledger")
	if err == nil {
		defer os.RemoveAll(dir)
		stores := []database{{fence.SQLite, sqliteSource(filepath.Join(dir, "ledger.db"))}}
		if o.postgres != "" {
			stores = append(stores, database{fence.Postgres, o.postgres})
		}
		if o.mariadb != "" {
			stores = append(stores, database{fence.MariaDB, o.mariadb})
		}
		err = o.compare(ctx, stores, out)
	}
	if err != nil {
		fmt.Fprintln(errOut, err)
		return exitWrong
	}
	return exitOK
}

// compare measures all modes on all stores, prints a table and draws the plot. The error says which result is wrong.
func (o options) compare(ctx context.Context, stores []database, out io.Writer) error {
	printHeader(out)
	var results []result
	var wrong []error
	for _, db := range stores {
		for _, m := range modesOn(db.Dialect) {
			r, err := o.measure(ctx, db, m)
			if err != nil {
				return errors.Join(append(wrong, err)...)
			}
			r.print(out)
			results = append(results, r)
			wrong = append(wrong, r.verdict(o.Transfers))
		}
	}
	if o.plot != "" {
		wrong = append(wrong, os.WriteFile(o.plot, []byte(plot(results, o.Transfers)), 0o644)) //nolint:gosec // others may read it
	}
	return errors.Join(wrong...)
}
