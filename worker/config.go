package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Defaults of [Config].
const (
	DefaultConcurrency              = 10
	DefaultTaskCheckInterval        = attach.DefaultTaskCheckInterval
	DefaultDelayedTaskCheckInterval = attach.DefaultDelayedTaskCheckInterval
	DefaultShutdownTimeout          = 8 * time.Second
)

// maxWeight is the maximum weight of a queue. For each fetch, asynq builds a list whose length is the sum of all
// weights.
const maxWeight = 1000

// Config configures a [Worker]. Redis must be set; every other field has a default. [FromEnv] reads it from RAILTOKEN_*
// variables, whose names are given with the fields.
type Config struct {
	// Redis is where asynq keeps its tasks. RAILTOKEN_REDIS_*, RAILTOKEN_NAMESPACE and RAILTOKEN_NAMESPACE_TASKS: see [Redis].
	Redis Redis
	// LockRedis is where the locks are; the same as Redis when zero. RAILTOKEN_LOCK_REDIS_*, or RAILTOKEN_LOCK_NODES for
	// locks on several servers.
	LockRedis Redis
	// LockGuard prevents a server of LockRedis.Nodes from voting while that server may have forgotten locks.
	// RAILTOKEN_LOCK_GUARD: connect (the default), strict or off. Unless LockGuard is off, a server that has just started
	// does not vote for 55 s. LockGuard has no effect on a single Redis.
	LockGuard locking.GuardMode
	// Locker locks the keys in a store other than Redis; nil for locks on LockRedis. Tasks stay on Redis. A locking.Gate is
	// put in front of it, unless it is one. Close a Locker of your own after the worker.
	Locker locking.Locker

	// Queues maps the queues to work on to their weights; "default" alone when empty. RAILTOKEN_QUEUES, for example
	// "audit=3,allocate=1".
	Queues map[string]int
	// StrictPriority makes the worker take tasks from a queue only while all queues of larger weight are empty.
	// RAILTOKEN_STRICT_PRIORITY.
	StrictPriority bool
	// Concurrency is the maximum number of tasks that run at a time; 10 when zero. RAILTOKEN_CONCURRENCY.
	Concurrency int
	// SlotBudget is the maximum number of tasks that wait in their slots, by [middleware.Wait], for all keys
	// together; half of Concurrency when zero, none when negative. RAILTOKEN_SLOT_BUDGET.
	SlotBudget int

	// TaskCheckInterval is the maximum time between two checks for tasks by an idle server; 50 ms when zero. The server
	// checks after 0.72 to 0.98 of it, and at once when this worker has woken a task. RAILTOKEN_TASK_CHECK_INTERVAL.
	TaskCheckInterval time.Duration
	// DelayedTaskCheckInterval is the time between two checks for delayed tasks; 1 s when zero.
	// RAILTOKEN_DELAYED_TASK_CHECK_INTERVAL.
	DelayedTaskCheckInterval time.Duration
	// ShutdownTimeout is how long running tasks may continue after the shutdown has begun. Then their contexts are
	// cancelled, and the tasks are returned to their queues. 8 s when zero. RAILTOKEN_SHUTDOWN_TIMEOUT.
	ShutdownTimeout time.Duration

	// LockTTL and MaxHold are TTL and MaxHold of locking.Options, for handlers without their own: 30 s and 30 min when
	// zero. RAILTOKEN_LOCK_TTL, RAILTOKEN_MAX_HOLD.
	LockTTL, MaxHold time.Duration
	// MaxKeySize is the maximum length of a business key in bytes; 1024 when zero. RAILTOKEN_MAX_KEY_SIZE.
	MaxKeySize int
	// MaxKeys is the maximum number of business keys of a task; 100 when zero. RAILTOKEN_MAX_KEYS.
	MaxKeys int
	// Strategy applies to handlers without their own; [middleware.Requeue] when nil. RAILTOKEN_STRATEGY: failfast,
	// wait, requeue, fifo or strictfifo; the last two are requeue with that order. With an order, a task with more than
	// one key is archived.
	Strategy middleware.Strategy

	// AllowEviction accepts a Redis that may evict keys, and thus tasks and locks, when its memory is full. Otherwise such
	// a Redis is refused. LockRedis.Nodes must not evict keys unless LockGuard is off. RAILTOKEN_ALLOW_EVICTION.
	AllowEviction bool
	// AllowUnknownAsynq is attach.Options.AllowUnknownAsynq. RAILTOKEN_ALLOW_UNKNOWN_ASYNQ.
	AllowUnknownAsynq bool
	// AllowSeparateLocks accepts other workers of the same queues that have their locks elsewhere. Otherwise Start returns
	// an attach.SeparateLocksError beside such a worker. RAILTOKEN_ALLOW_SEPARATE_LOCKS.
	AllowSeparateLocks bool

	// DisableReports is attach.Options.DisableReports. RAILTOKEN_DISABLE_REPORTS.
	DisableReports bool
	// Recovery is attach.Options.Recovery: how soon the tasks of a worker that has died run again. RAILTOKEN_RECOVERY_AFTER, which
	// may be off, and RAILTOKEN_RECOVERY_DEATHS.
	Recovery attach.Recovery

	// Logger receives the log of the worker and of asynq; slog.Default when nil. slog.New(slog.DiscardHandler) disables
	// it.
	Logger *slog.Logger
	// Observer receives every event of the locks; nil disables it.
	Observer middleware.Observer
	// OnArchived and OnCompleted hear of each task of the worker's queues that has ended for good: see attach.Options.
	OnArchived  attach.OnArchived
	OnCompleted attach.OnCompleted
	// BaseContext, IsFailure, RetryDelayFunc and ErrorHandler are as in asynq's Config. The last three are not called
	// for the errors of tasks that wait ([attach.Waits]).
	BaseContext    func() context.Context
	IsFailure      func(error) bool
	RetryDelayFunc asynq.RetryDelayFunc
	ErrorHandler   asynq.ErrorHandler
	// Asynq, if set, changes other fields of the asynq servers' configuration, such as GroupAggregator, HealthCheckFunc
	// and LogLevel.
	Asynq func(*asynq.Config)
}

// Validate returns an error that lists all problems with the configuration, each with its cause and remedy, or nil.
func (c Config) Validate() error {
	errs := []error{c.Redis.validate("REDIS")}
	if !c.LockRedis.isZero() {
		errs = append(errs, c.LockRedis.validate(lockVariable))
	}
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("worker: "+format, args...)) }
	if c.LockRedis.Lanes != 0 {
		fault("LockRedis has Lanes: only the Redis of the tasks has, so set those of Redis")
	}
	if c.Locker != nil && !c.LockRedis.isZero() {
		fault("Locker and LockRedis are both set: locks are on one of them, so remove the other")
	}
	for name, weight := range c.Queues {
		switch {
		case strings.TrimSpace(name) == "":
			fault("Queues has a queue with a blank name: name it, or remove it")
		case weight < 1 || weight > maxWeight:
			fault("Queues gives %q the weight %d: it must be from 1 to %d", name, weight, maxWeight)
		}
	}
	c = c.withDefaults()
	if c.Concurrency < 1 {
		fault("Concurrency is %d: it must be at least 1", c.Concurrency)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TaskCheckInterval", c.TaskCheckInterval},
		{"DelayedTaskCheckInterval", c.DelayedTaskCheckInterval},
		{"ShutdownTimeout", c.ShutdownTimeout},
	} {
		errs = append(errs, leasing.CheckDuration("worker: "+d.name, d.value, leasing.LeastDuration))
	}
	if c.MaxKeySize < 0 {
		fault("MaxKeySize is %d: it cannot be negative", c.MaxKeySize)
	}
	if c.LockGuard < locking.GuardConnect || c.LockGuard > locking.GuardOff {
		fault("LockGuard is %d: it must be GuardConnect, GuardStrict or GuardOff", c.LockGuard)
	}
	if c.MaxKeys < 0 {
		fault("MaxKeys is %d: it cannot be negative", c.MaxKeys)
	}
	if c.LockTTL >= taskrun.MaxTTL {
		fault("LockTTL is %v: it must be below %v, because asynq brings back the task of a crashed worker after 55 to 120 s",
			c.LockTTL, taskrun.MaxTTL)
	}
	errs = append(errs, c.Recovery.Validate())
	errs = append(errs, locking.Options{TTL: c.LockTTL, MaxHold: c.MaxHold}.Validate())
	if v, ok := c.Strategy.(interface{ Validate() error }); ok {
		errs = append(errs, v.Validate())
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	setDefault(&c.Concurrency, DefaultConcurrency)
	setDefault(&c.SlotBudget, max(c.Concurrency/2, 1))
	setDefault(&c.TaskCheckInterval, DefaultTaskCheckInterval)
	setDefault(&c.DelayedTaskCheckInterval, DefaultDelayedTaskCheckInterval)
	setDefault(&c.ShutdownTimeout, DefaultShutdownTimeout)
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{"default": 1}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// setDefault replaces a zero value with a default.
func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}
