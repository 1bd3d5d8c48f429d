// Command allocation allocates stock to orders as a warehouse does: in runs of many orders, each order under its own
// lock, while other tasks audit single orders. It shows what happens to orders that cannot be allocated, and checks
// that the stock is exact.
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

	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// Exit statuses.
const (
	exitOK    = 0
	exitWrong = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	Orders string // a CSV file
	N      int
	Each   int
	Seed   uint64
	Work   time.Duration
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("allocation", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.Orders, "orders", "",
		"CSV `file` of orders with the columns order_id, items and seller_ids; generated when empty")
	flags.IntVar(&o.N, "n", 400, "`number` of orders")
	flags.IntVar(&o.Each, "each", 40, "`number` of orders in a run")
	flags.Uint64Var(&o.Seed, "seed", 1, "`seed` of generated orders")
	flags.DurationVar(&o.Work, "work", 5*time.Millisecond, "how `long` it takes to allocate or audit an order")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case o.N < 1 || o.Each < 1 || flags.NArg() > 0:
		fmt.Fprintln(errOut, "-n and -each must be at least 1, and there are no arguments besides flags")
		return exitUsage
	}
	ok, err := run(ctx, o, out)
	if err != nil {
		fmt.Fprintln(errOut, err)
	}
	if err != nil || !ok {
		return exitWrong
	}
	return exitOK
}

// run makes the runs of a warehouse and reports whether all is well.
func run(ctx context.Context, o options, out io.Writer) (ok bool, err error) {
	orders, source, err := load(o)
	if err != nil {
		return false, err
	}
	cfg, name, closeRedis, err := environment()
	if err != nil {
		return false, err
	}
	defer closeRedis()
	dir, err := os.MkdirTemp("", "allocation")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	stock := stockFor(orders)
	db, err := openStore(ctx, filepath.Join(dir, "warehouse.db"), orders, stock)
	if err != nil {
		return false, err
	}
	defer db.close()
	w, err := newWarehouse(cfg, db, o.Work)
	if err != nil {
		return false, err
	}
	defer w.close()

	runs := divide(orders, o.Each)
	fmt.Fprintf(out, "%d orders (%s) are allocated in %d runs of %d, and every fourth one is audited meanwhile.\n",
		len(orders), source, len(runs), o.Each)
	fmt.Fprintf(out, "Redis: %s.\n", name)
	if err := w.work(ctx, runs, orders, newProgress(out, len(orders))); err != nil {
		return false, err
	}
	printFailed(out, w.failed())
	if err := w.demonstrateRequest(ctx, orders, out); err != nil {
		return false, err
	}
	faults, err := w.check(ctx, orders, stock)
	if err != nil {
		return false, err
	}
	for _, fault := range faults {
		fmt.Fprintln(out, "WRONG:", fault)
	}
	if len(faults) == 0 {
		fmt.Fprintln(out, "\nOK: every order was allocated once or is in the list, the stock is exact, and no two tasks met.")
	}
	return len(faults) == 0, nil
}

// environment reads the RAILTOKEN_* variables. If they name no Redis, it starts one in this process.
func environment() (cfg worker.Config, name string, closeRedis func(), err error) {
	const addr = "RAILTOKEN_REDIS_ADDR"
	closeRedis = func() {}
	if os.Getenv(addr) == "" {
		server, err := embeddedredis.Start()
		if err != nil {
			return cfg, "", closeRedis, err
		}
		closeRedis = func() { _ = server.Close() }
		if err := os.Setenv(addr, server.Addr()); err != nil {
			return cfg, "", closeRedis, err
		}
		defer os.Unsetenv(addr)
		cfg, err = worker.FromEnv()
		return cfg, "embedded in this process", closeRedis, err
	}
	cfg, err = worker.FromEnv()
	return cfg, cfg.Redis.String(), closeRedis, err
}
