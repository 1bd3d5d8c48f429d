package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// options are those of the command line.
type options struct {
	Orders      string
	N           int
	Seed        uint64
	Strategy    string
	NoLock      bool
	Concurrency int
	Workers     int
	Work        span
	SingleTry   int
	Cancel      int
	Timeline    string
	DB          string
	Run         runID
	Timeout     time.Duration
	Demo        bool
	Serve       bool
	Produce     bool
	Listen      string
	Health      string
	Verbose     bool

	given map[string]bool // the flags that were set
}

// defaultConcurrency is for each worker, where neither a flag nor RAILTOKEN_CONCURRENCY says otherwise.
const defaultConcurrency = 32

const usage = `orders runs audits and allocations of orders under one lock, and counts what went wrong.

Each order becomes two tasks of different types in different queues. Both lock the order; an allocation also locks the sellers
that it reserves from. A third task cancels an order: it stops the allocation and runs next. At the end stand a table, a page with the timeline of the keys, and the exit status: 1 on any overlap,
lost update, double effect or lost task.

Redis is taken from the RAILTOKEN_* variables. Without RAILTOKEN_REDIS_ADDR (or _MASTER, or _CLUSTER) one is started inside
this process.

Flags:
`

// parseOptions reads the command line. It returns every fault at once, and flag.ErrHelp after printing the usage when that was
// asked for.
func parseOptions(args []string, output io.Writer) (options, error) {
	o := options{Work: span{5 * time.Millisecond, 20 * time.Millisecond}, given: map[string]bool{}}
	f := flag.NewFlagSet("orders", flag.ContinueOnError)
	f.SetOutput(output)
	f.Usage = func() {
		fmt.Fprint(output, usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.Orders, "orders", "", "read the orders from this CSV `file`; generate them when empty")
	f.IntVar(&o.N, "n", 1000, "how `many` orders to generate")
	f.Uint64Var(&o.Seed, "seed", 1, "the same seed generates the same orders")
	f.StringVar(&o.Strategy, "strategy", "", "what a task in conflict does: failfast, wait, requeue or default")
	f.BoolVar(&o.NoLock, "no-lock", false, "take no locks and check no tokens, to see what goes wrong")
	f.IntVar(&o.Concurrency, "concurrency", defaultConcurrency, "how many tasks each worker runs at a time")
	f.IntVar(&o.Workers, "workers", 2, "how many workers this process runs; with 0 it enqueues, leaves the work to -serve processes with the same -run and -db, and waits for its end")
	f.Var(&o.Work, "work", "how long a task works: `min,max`")
	f.IntVar(&o.SingleTry, "single-try", 10, "every `n`-th allocation has no retry at all; none with 0")
	f.IntVar(&o.Cancel, "cancel", 0, "every `n`-th order is cancelled, which stops its allocation; none with 0")
	f.StringVar(&o.Timeline, "timeline", filepath.Join(os.TempDir(), "orders-timeline.html"), "write the timeline to this `file`; none when empty")
	f.StringVar(&o.DB, "db", "", "keep the database in this `file`; in a temporary one when empty")
	f.StringVar((*string)(&o.Run), "run", "", "`name` of the run, for several processes that share queues and database; random when empty")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "give up after this time")
	f.BoolVar(&o.Demo, "demo", false, fmt.Sprintf("show %d orders, first without locks and then with them", demoOrders))
	f.BoolVar(&o.Serve, "serve", false, "only work on tasks, until SIGTERM or Ctrl-C; needs -run and -db")
	f.BoolVar(&o.Produce, "produce", false, "only enqueue the tasks; needs -run")
	f.StringVar(&o.Listen, "listen", "", "with -serve: answer probes at this `address`, such as 127.0.0.1:8066, under /readyz and /livez, and Prometheus under /metrics")
	f.StringVar(&o.Health, "health", "", "only ask for the health of a worker at this `URL`, such as http://127.0.0.1:8066/readyz; the exit status is 0 if it is well")
	f.BoolVar(&o.Verbose, "v", false, "write the log of the workers to stderr")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	f.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
	if f.NArg() > 0 {
		return o, fmt.Errorf("orders: %q is no flag: all arguments are flags, see -help", f.Arg(0))
	}
	if o.Serve && !o.given["workers"] {
		o.Workers = 1
	}
	if o.Demo && !o.given["n"] {
		o.N = demoOrders
	}
	if o.Demo && !o.given["work"] {
		o.Work = demoWork
	}
	if o.Demo && !o.given["cancel"] {
		o.Cancel = demoCancel
	}
	return o, o.validate()
}

// validate returns every fault at once.
func (o options) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("orders: "+format, args...)) }
	if o.N < 1 {
		fault("-n is %d: generate at least 1 order", o.N)
	}
	if o.Concurrency < 1 {
		fault("-concurrency is %d: it must be at least 1", o.Concurrency)
	}
	if o.SingleTry < 0 {
		fault("-single-try is %d: give 0 for none, or every how many allocations", o.SingleTry)
	}
	if o.Cancel < 0 {
		fault("-cancel is %d: give 0 for none, or every how many orders", o.Cancel)
	}
	if o.Timeout <= 0 {
		fault("-timeout is %v: give the time after which to give up", o.Timeout)
	}
	if _, err := strategyOf(o.Strategy); err != nil {
		errs = append(errs, err)
	}
	if o.Run != "" {
		errs = append(errs, o.Run.validate())
	}
	modes := 0
	for _, set := range []bool{o.Demo, o.Serve, o.Produce, o.Health != ""} {
		if set {
			modes++
		}
	}
	if modes > 1 {
		fault("-demo, -serve, -produce and -health exclude each other: give one")
	}
	if o.Listen != "" && (!o.Serve || o.Workers != 1) {
		fault("-listen is for -serve with one worker: add -serve, and leave out -workers")
	}
	switch {
	case o.Demo && (o.NoLock || o.DB != "" || o.Run != "" || o.Orders != ""):
		fault("-demo decides on -no-lock, -db, -run and -orders by itself: leave them out")
	case o.Serve && (o.Run == "" || o.DB == ""):
		fault("-serve needs -run and -db: name the run and the database that the processes share")
	case o.Produce && o.Run == "":
		fault("-produce needs -run: name the run that -serve processes work on")
	}
	least := 1
	if !o.Demo && !o.Serve {
		least = 0
	}
	if o.Workers < least {
		fault("-workers is %d: it must be at least %d", o.Workers, least)
	} else if o.Workers == 0 && (o.Run == "" || o.DB == "") {
		fault("-workers 0 needs -run and -db: name the run and the database of the -serve processes")
	}
	return errors.Join(errs...)
}

// load returns the orders, and where they come from.
func (o options) load() ([]order, string, error) {
	if o.Orders == "" {
		return generateOrders(o.N, o.Seed), fmt.Sprintf("generated with seed %d", o.Seed), nil
	}
	orders, err := readOrdersFile(o.Orders)
	return orders, "from " + filepath.Base(o.Orders), err
}

// config returns the workers' configuration: flags that were given come before the environment.
func (o options) config(env worker.Config, run runID) (worker.Config, error) {
	cfg := env
	var err error
	if cfg.Queues, err = run.queues(env.Queues); err != nil {
		return cfg, err
	}
	cfg.Concurrency = o.slots(env)
	if o.Strategy != "" {
		cfg.Strategy, err = strategyOf(o.Strategy)
	}
	return cfg, err
}

// slots returns how many slots each worker has.
func (o options) slots(env worker.Config) int {
	if o.given["concurrency"] || env.Concurrency == 0 {
		return o.Concurrency
	}
	return env.Concurrency
}

// strategyOf returns the strategy of a name; nil for the worker's default.
func strategyOf(name string) (middleware.Strategy, error) {
	switch name {
	case "", "default":
		return nil, nil
	case "failfast":
		return middleware.FailFast{}, nil
	case "wait":
		return middleware.Wait{}, nil
	case "requeue":
		return middleware.Requeue{}, nil
	default:
		return nil, fmt.Errorf("orders: -strategy is %q: use failfast, wait, requeue or default", name)
	}
}

// strategyName returns the name of a strategy.
func strategyName(s middleware.Strategy) string {
	switch s.(type) {
	case nil:
		return "default"
	case middleware.FailFast:
		return "failfast"
	case middleware.Wait:
		return "wait"
	case middleware.Requeue:
		return "requeue"
	default:
		return fmt.Sprintf("%T", s)
	}
}

// String returns the span as the -work flag takes it.
func (s *span) String() string {
	return s.Min.String() + "," + s.Max.String()
}

// Set reads the value of the -work flag.
func (s *span) Set(text string) error {
	first, last, ok := strings.Cut(text, ",")
	if !ok {
		last = first
	}
	low, err1 := time.ParseDuration(strings.TrimSpace(first))
	high, err2 := time.ParseDuration(strings.TrimSpace(last))
	if err := errors.Join(err1, err2); err != nil || low < 0 || high < low || high > time.Minute {
		return errors.New("give two durations, the smaller one first and none over 1m, such as 5ms,20ms")
	}
	s.Min, s.Max = low, high
	return nil
}
