package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/middleware"
)

// fewServers is how many servers of a process can be notified of one wake.
const fewServers = 8

// Client returns the Redis client for one asynq server: pass it to asynq.NewServerFromRedisClient together with
// [Attached.Config]. Each server needs its own. It need not be closed.
func (a *Attached) Client() redis.UniversalClient {
	server := (*line.Engine)(a.queue).Conn(broker.Options{
		Interval: a.interval, Queues: a.queues(), Strict: a.cfg.StrictPriority, Lanes: a.lanes,
		Slots: a.server.Slots, Stopping: a.stopping,
		Wakes: a.wakes, Plain: a.opts.AllowUnknownAsynq, Logger: a.opts.Logger, Ready: a.ready,
		Worker: a.recovery.worker,
	})
	a.watch(server)
	var all []string
	for queue := range a.served() {
		all = append(all, a.lanes.Queues(queue)...)
	}
	slices.Sort(all)
	a.teller.Start(all)
	return server
}

// queues returns the queues of the servers. They cannot change afterwards.
func (a *Attached) queues() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = true
	return maps.Clone(a.cfg.Queues)
}

// served returns the queues of the servers as asynq has them.
func (a *Attached) served() map[string]int {
	if queues := a.queues(); len(queues) > 0 {
		return queues
	}
	return map[string]int{"default": 1}
}

// serve adds a queue in which a strategy lets tasks wait.
func (a *Attached) serve(queue string) error {
	if queue == "" {
		return nil
	}
	if !a.oneNode {
		return fmt.Errorf("attach: the strategy lets tasks wait in the queue %q: on a Redis Cluster, or with a client that "+
			"is not a *redis.Client, tasks can wait only in their own queue: leave Requeue.Queue empty", queue)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, named := a.cfg.Queues[queue]; {
	case named:
	case a.fixed:
		return fmt.Errorf("attach: the strategy lets tasks wait in the queue %q, which the server does not work on: "+
			"add it to asynq.Config.Queues", queue)
	case len(a.cfg.Queues) == 0:
		a.cfg.Queues = map[string]int{"default": 1, queue: 1}
	default:
		a.cfg.Queues[queue] = 1
	}
	return nil
}

// configured is the context key that marks the tasks of servers with our Config.
type configured struct{}

// Config returns the configuration for the asynq servers. It is the one given to New, with changes to these fields:
//
//   - IsFailure, RetryDelayFunc and ErrorHandler recognize the errors of waiting tasks, and leave all other errors to
//     the functions of New's configuration;
//   - Queues also contains the queues in which strategies let tasks wait, and BaseContext marks the tasks of these
//     servers;
//   - Logger leaves out the line "Retry exhausted" of a task that only waits; without a Logger it writes what asynq's own
//     would;
//   - TaskCheckInterval is 1 ms, because the client of [Attached.Client] paces the fetches: by New's interval, or by
//     [DefaultTaskCheckInterval];
//   - DelayedTaskCheckInterval is [DefaultDelayedTaskCheckInterval] if it was zero.
func (a *Attached) Config() asynq.Config {
	queues := a.queues() // a.cfg does not change from now on
	cfg := a.cfg
	cfg.Queues = queues
	base := cfg.BaseContext
	ours := context.WithValue(context.Background(), configured{}, a)
	cfg.BaseContext = func() context.Context { // asynq calls it first in the goroutine that acknowledges the task
		pipeline.GrowStackDeep()
		if base == nil {
			return ours
		}
		return context.WithValue(base(), configured{}, a)
	}
	cfg.Logger = quietLog{cmp.Or[asynq.Logger](cfg.Logger, newPlainLog(os.Stderr)), a.waits}
	cfg.TaskCheckInterval = broker.CheckInterval
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, DefaultDelayedTaskCheckInterval)
	cfg = middleware.ServerConfig(cfg)
	if a.teller != nil {
		cfg.ErrorHandler = a.noting(cfg.ErrorHandler)
	}
	return cfg
}

// forgotten logs once which line is missing, because asynq passes the errors of tasks only to its ErrorHandler.
func (a *Attached) forgotten(ctx context.Context, err error) error {
	a.told.Do(func() {
		a.opts.Logger.ErrorContext(ctx, "no task runs: a line is missing where the server is made", "error", err)
	})
	return err
}

// errNoClient is the error of each task of a server that does not use our client.
var errNoClient = errors.New("attach: this asynq server does not use the client that parks its tasks: " +
	"start it with asynq.NewServerFromRedisClient(attached.Client(), attached.Config())")

// errNoConfig is the error of each task of a server that does not use our Config.
var errNoConfig = errors.New("attach: this asynq server does not use the Config that tells a waiting task " +
	"from a failed one: start it with asynq.NewServerFromRedisClient(attached.Client(), attached.Config())")
