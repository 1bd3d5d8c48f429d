package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Default values for intervals that are zero in asynq.Config. asynq's own defaults are 1 s and 5 s.
const (
	DefaultTaskCheckInterval        = 50 * time.Millisecond
	DefaultDelayedTaskCheckInterval = time.Second
)

// Options configures [New]. With the zero value the locks are on the Redis of the tasks, and all fields have defaults.
type Options struct {
	// Locker locks the keys; a locking.Single on the client when nil. A locking.Gate is put in front of it, unless it is
	// one. Close a Locker of your own after the Attached.
	Locker locking.Locker
	// RedisKeys is that of a locking.Single on the Redis of the tasks: set it with a Locker whose locks are there. When nil,
	// the locks are assumed to be elsewhere, and parking a task costs one more attempt to lock its key.
	RedisKeys func(key string) (lock, notify string)

	// Namespace keeps applications apart that share the Redis of the tasks: "shop-a" puts "shop-a:" before the names of
	// railtoken's keys and channels. With NamespaceTasks asynq's have the prefix, too, so that a user of Redis with the rules
	// ~shop-a:* and &shop-a:* suffices, and each application has queues of its own. None when empty. See [Namespaced], which
	// asynq's own tools need then, and which servers without NamespaceTasks exclude each other.
	//
	// The servers then use connections of their own, which Close closes. A client of Namespaced may be given instead.
	Namespace      string
	NamespaceTasks bool

	// Lanes divides the queues on a Redis Cluster, so that a task, its locks and its line are in one slot, and the servers work
	// there as on one Redis, on all masters: a power of two from 16 to 1024. All processes have the same number, for as long as there
	// are tasks and locks. A task whose producer knows its keys goes to a queue of its lane, such as orders@17-1Mk; Queues of
	// asynq.Config names orders alone, and 255 queues at most. It needs a *redis.ClusterClient. None when 0.
	Lanes int

	// Strategy applies to handlers without a strategy of their own; middleware.Requeue when nil.
	Strategy middleware.Strategy
	// TTL and MaxHold are as in locking.Options, for handlers without their own: 30 s and 30 min when zero. TTL must be
	// below 55 s.
	TTL, MaxHold time.Duration
	// MaxKeySize is the maximum length of a key in bytes; 1024 when zero. MaxKeys is the maximum number of keys of a
	// task; 100 when zero.
	MaxKeySize, MaxKeys int
	// SlotBudget is the maximum number of tasks that wait in their slots, for all keys together; half of the server's
	// Concurrency when zero, none when negative.
	SlotBudget int

	// AllowEviction accepts a Redis that may evict keys, and thus tasks and locks, when its memory is full. See
	// [Attached.Check].
	AllowEviction bool

	// AllowUnknownAsynq accepts an asynq whose scripts are not those of a version that railtoken knows, such as a fork.
	// Otherwise New refuses it. Exclusion still holds, but tasks wait plainly: see [New].
	AllowUnknownAsynq bool

	// AllowSeparateLocks accepts other workers of the same queues that have their locks elsewhere: for example, because the
	// keys of their tasks are different. Otherwise a server fetches no task beside such a worker: see [SeparateLocksError].
	AllowSeparateLocks bool

	// DisableReports turns off the reports of what the tasks of the servers hold, which package inspect reads, and the history
	// of what happened, which the admin page shows. A report costs four commands every 5 s, however many locks are held; the
	// history costs two, and three for each of at most 100 keys for which tasks wait. Nobody notices that the locks of a server
	// without reports are elsewhere, unless this server starts later than the others.
	DisableReports bool

	// Recovery says how soon the tasks of a worker that has died run again.
	Recovery Recovery

	// OnArchived and OnCompleted hear of each task of the servers' queues that has ended for good. They are called after the end was
	// written, once per end as a rule and again if a process ends before it has noted the call: so they must bear to be called
	// twice. After an error or a panic they are called again, by any server with callbacks, 10 times in all within 4 minutes;
	// then a [middleware.Untold] event and a log line tell of it. At most 16 run at a time, outside of asynq's slots. If a process
	// dies in between, another one that has the callback tells the end within 10 s. They should return within seconds after their ctx has
	// ended, which it does when [Attached.Close] has waited for as long as it may.
	//
	// Tasks need not have locks. Set the same callbacks in all servers of a queue: a server without them leaves out the tasks
	// that it completes. What other programs archive is found within 10 s: asynq servers that are not attached, asynq's
	// Inspector, its recoverer in any process. Nobody hears of tasks that such programs complete or delete. Nil costs nothing.
	OnArchived  OnArchived
	OnCompleted OnCompleted

	// Observer receives every event of the locks; nil disables it.
	Observer middleware.Observer
	// Logger receives failures and other messages for operators, with hashed keys. When nil, the log goes to
	// asynq.Config's Logger, at its LogLevel and above, or to slog.Default if there is none.
	// slog.New(slog.DiscardHandler) disables it.
	Logger *slog.Logger
}

// Attached provides what asynq servers need for locks. It belongs to one asynq.Config. Several servers of a process may
// share it, each with its own [Attached.Client]. It is safe for concurrent use.
type Attached struct {
	client   redis.UniversalClient // in the namespace
	conn     io.Closer             // the client, if New has made it; else nil
	opts     Options
	oneNode  bool // if false, tasks can wait only in their own queue
	lanes    lanes.Lanes
	interval time.Duration

	mu    sync.Mutex
	cfg   asynq.Config
	fixed bool // the queues may no longer change, because a server has them

	servers []*broker.Conn
	health  vitals

	checking sync.Mutex
	fit      bool // Check has succeeded

	locker   locking.Locker // of the tasks
	outside  locking.Locker // of work outside of tasks
	unfollow func()         // ends the following of late releases
	closers  []taskrun.Locker
	queue    *delayqueue.Queue
	server   *taskrun.Server
	teller   *ends.Teller // of the ends of tasks; nil if nobody hears of them
	wakes    broker.Wakes
	stopping chan struct{}
	stop     sync.Once
	reports  reports
	recovery recovery
	told     sync.Once // a missing line has been logged
	running  sync.WaitGroup
}

// New attaches locks to asynq servers that use the Redis of client and the configuration cfg. It does not connect. If
// the configuration is invalid, New reports all problems in one error. The caller still owns the client: close it after
// the servers have shut down and Close has returned.
//
// New refuses an asynq whose scripts it does not recognise, with [delayqueue.ErrUnknownAsynq]: those of v0.26.0
// are known. With AllowUnknownAsynq such a server runs in plain mode. A task in conflict then waits in asynq's
// retry set for 1 to 5 s at a time, without using up a retry; no release wakes it, and no order is kept. On its last
// attempt it waits in its slot, where other tasks could run, until a second before its timeout or deadline. If its key is
// still held by then, it is archived without having run, with a reason for middleware.ParseConflict.
func New(client redis.UniversalClient, cfg asynq.Config, opts Options) (*Attached, error) {
	if client == nil {
		return nil, errors.New("attach: the client is nil: give the go-redis client of the asynq server")
	}
	if opts.Logger == nil {
		opts.Logger = loggerOf(cfg)
	}
	if err := opts.recognise(broker.Recognise); err != nil {
		return nil, err
	}
	client, made, err := namespaced(client, opts.Namespace, opts.NamespaceTasks)
	if err != nil {
		return nil, err
	}
	if !made {
		return attached(client, cfg, opts)
	}
	a, err := attached(client, cfg, opts)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	a.conn = client
	return a, nil
}

// attached does what New does, on a client that has the namespace.
func attached(client redis.UniversalClient, cfg asynq.Config, opts Options) (*Attached, error) {
	if err := sameNamespace(client, opts.Locker, opts.RedisKeys); err != nil {
		return nil, err
	}
	_, oneNode := client.(*redis.Client)
	if err := opts.Recovery.fits(opts); err != nil {
		return nil, err
	}
	cfg.Queues = maps.Clone(cfg.Queues)
	maps.DeleteFunc(cfg.Queues, func(_ string, priority int) bool { return priority <= 0 }) // asynq leaves them alone
	inLanes, err := opts.inLanes(client, cfg)
	if err != nil {
		return nil, err
	}
	a := &Attached{
		client: client, opts: opts, cfg: cfg, oneNode: oneNode, lanes: inLanes, locker: opts.Locker,
		interval: cmp.Or(cfg.TaskCheckInterval, DefaultTaskCheckInterval),
		wakes:    broker.NewWakes(fewServers), stopping: make(chan struct{}),
	}
	slots := cfg.Concurrency
	if slots < 1 {
		slots = runtime.NumCPU() // as asynq has it
	}
	queue, err := delayqueue.New(client, delayqueue.Options{
		Logger: opts.Logger, Woken: func(delayqueue.Task) { a.wakes.Wake() }, Repaired: a.repaired, Lanes: opts.Lanes,
	})
	if err != nil {
		return nil, err
	}
	a.queue = queue
	if a.locker != nil {
		a.locker = taskrun.On(a.locker).Gate
	} else {
		locks, err := taskrun.OnClient(client, opts.MaxHold, opts.AllowEviction, opts.Lanes)
		if err != nil {
			return nil, errors.Join(err, queue.Close())
		}
		a.locker, a.closers, a.opts.RedisKeys = locks, []taskrun.Locker{locks}, locks.RedisKeys
	}
	if (oneNode || opts.Lanes > 0) && a.opts.RedisKeys != nil {
		(*line.Engine)(queue).Colocate(locks.Colocated(a.locker))
	}
	if a.opts.RedisKeys != nil {
		(*line.Engine)(queue).LocksAre(a.opts.RedisKeys)
	}
	a.hear()
	a.server = &taskrun.Server{Queue: queue, RedisKeys: a.opts.RedisKeys, Slots: slots, Stopping: a.stopping}
	a.recoverWith()
	a.outside, a.unfollow = a.follow(a.locker), locks.OnLateRelease(a.locker, a.wakeNext)
	a.observe()
	if _, err := a.LockWith(LockOptions{Key: middleware.FixedKey("any")}); err != nil { // checks the options
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// FenceTTL returns how long a Locker must keep its fence counters for leases of at most maxHold: twice as long, and at
// least 1 h. Use it as the FenceTTL of a Locker of your own.
func FenceTTL(maxHold time.Duration) time.Duration { return taskrun.FenceTTL(maxHold) }

// repaired reports a task that the delay queue has woken in the background, in place of one that did not arrive.
func (a *Attached) repaired(key string, next delayqueue.Task, lost bool) {
	e := &middleware.Event{
		Kind: middleware.Woke, Key: key, Cause: middleware.ByRepair, Next: next, WakeLost: lost && !a.server.Budget.WasFull(),
	}
	tell(context.Background(), a.opts.Observer, a.opts.Logger, e)
}

// tell reports an event to an observer, if there is one.
func tell(ctx context.Context, observer middleware.Observer, log *slog.Logger, e *middleware.Event) {
	if observer == nil {
		return
	}
	e.At = time.Now()
	taskrun.CallObserver(ctx, log, string(e.Kind), e.Task, func() { observer(ctx, *e) })
}

// Queue returns the queue of waiting tasks, which lists and reorders them.
func (a *Attached) Queue() *delayqueue.Queue { return a.queue }

// Stop ends all waits in slots and parks their tasks. Call it before the servers are shut down, so that the shutdown
// does not wait for them. Without it, they wait until their strategy's time is up.
func (a *Attached) Stop() { a.stop.Do(func() { close(a.stopping) }) }

// abandoned is how long Close waits for handlers that asynq has abandoned.
const abandoned = 5 * time.Second

// Close releases what New has created. Call it after asynq's servers have shut down, and before the client is closed.
// It takes 8 s at most, also while Redis does not answer: within this time it waits up to 5 s for handlers that asynq has
// abandoned, so that they release their keys, and for tasks that are to be parked. Close calls Stop first.
func (a *Attached) Close() error {
	deadline := time.Now().Add(line.CloseLimit)
	a.Stop()
	reports := make(chan struct{})
	go func() {
		defer close(reports)
		a.reports.close(a)
	}()
	done := make(chan struct{})
	go func() {
		a.running.Wait()
		close(done)
	}()
	if !awaits(done, time.Now().Add(abandoned)) {
		a.opts.Logger.Error(
			"handlers or schedulers ignore their cancelled context; their keys become free when their TTL ends")
	}
	a.unfollow()
	a.teller.Close(deadline.Add(-time.Second))
	(*line.Engine)(a.queue).CloseBy(deadline)
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.CloseBy(deadline))
	}
	awaits(reports, deadline)
	if a.conn != nil {
		errs = append(errs, a.conn.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("attach: close: %w", err)
	}
	return nil
}

// awaits reports whether something is done by a deadline.
func awaits(done <-chan struct{}, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
