package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

// connection is where tasks and locks are.
type connection struct {
	addr, master, sentinels, cluster, nodes, user string
	namespace                                     string
	db, lanes                                     int
	tls, namespaceTasks                           bool

	config    worker.Config
	tasks     redis.UniversalClient
	locks     redis.UniversalClient // nil if they are with the tasks or on several servers
	servers   []*redis.Client       // of a Redlock
	inspector *inspect.Inspector
}

// flags adds the flags that say where Redis is.
func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.addr, "redis", "", "address of Redis, `host:port` (RAILTOKEN_REDIS_ADDR)")
	f.StringVar(&c.master, "master", "", "`name` of the master that sentinels watch (RAILTOKEN_REDIS_MASTER)")
	f.StringVar(&c.sentinels, "sentinels", "", "`addresses` of sentinels (RAILTOKEN_REDIS_SENTINELS)")
	f.StringVar(&c.cluster, "cluster", "", "`addresses` of nodes of a Redis Cluster (RAILTOKEN_REDIS_CLUSTER)")
	f.StringVar(&c.nodes, "lock-nodes", "", "`addresses` of the servers of a Redlock (RAILTOKEN_LOCK_NODES)")
	f.StringVar(&c.user, "user", "", "`name` of the user of Redis (RAILTOKEN_REDIS_USERNAME)")
	f.StringVar(&c.namespace, "namespace", "", "`name` before railtoken's keys in Redis (RAILTOKEN_NAMESPACE)")
	f.BoolVar(&c.namespaceTasks, "namespace-tasks", false, "asynq's keys have the namespace, too (RAILTOKEN_NAMESPACE_TASKS)")
	f.IntVar(&c.db, "db", 0, "`number` of the database (RAILTOKEN_REDIS_DB)")
	f.IntVar(&c.lanes, "lanes", 0, "`number` of lanes of the queues on a Redis Cluster (RAILTOKEN_LANES; default: that of the workers)")
	f.BoolVar(&c.tls, "tls", false, "encrypt connections (RAILTOKEN_REDIS_TLS)")
}

// open makes the clients. They connect at first use, except that a Redis Cluster is asked for the number of lanes.
func (c *connection) open(ctx context.Context) error {
	if c.inspector != nil {
		return nil
	}
	if err := c.configure(); err != nil {
		return err
	}
	c.tasks = c.config.Redis.Connect()
	n, err := c.findLanes(ctx)
	if err != nil {
		return errors.Join(err, c.tasks.Close())
	}
	options := inspect.Options{Tasks: c.tasks, Lanes: n}
	at := c.config.LockRedis
	switch {
	case len(at.Nodes) > 0:
		options.Nodes = at.NodeOptions()
		options.Redlock = locking.RedlockOptions{Guard: c.config.LockGuard}
		for _, node := range at.NodeOptions() {
			node.MaxRetries, node.DialerRetries, node.DialTimeout = -1, 1, 2*time.Second
			node.ContextTimeoutEnabled = true
			c.servers = append(c.servers, redis.NewClient(node))
		}
	case at.Addr != "" || at.Master != "" || len(at.Cluster) > 0:
		c.locks = at.Connect()
		options.Locks = c.locks
	}
	c.inspector, err = inspect.New(options)
	return err
}

// findLanes returns the number of lanes. If Redis does not answer, that is for the command to say.
func (c *connection) findLanes(ctx context.Context) (int, error) {
	recorded, err := lanes.Recorded(ctx, c.tasks)
	if _, refused := errors.AsType[redis.Error](err); err != nil && !refused {
		return c.config.Redis.Lanes, nil
	} else if err != nil {
		return 0, err
	}
	return chosenLanes(c.config.Redis.Lanes, recorded)
}

// chosenLanes returns the number of lanes that was given, or the recorded one: 0 for none.
func chosenLanes(given, recorded int) (int, error) {
	if given != 0 && recorded != 0 && given != recorded {
		return 0, fmt.Errorf("the number of lanes is to be %d, and the tasks have %d, as the key %s says: leave out --lanes and RAILTOKEN_LANES",
			given, recorded, lanes.Record)
	}
	return cmp.Or(given, recorded), nil
}

// configure reads the flags and the variables. Flags become variables, so that both are read and checked alike.
func (c *connection) configure() error {
	addresses := c.addr != "" || c.master != "" || c.cluster != ""
	for _, v := range []struct {
		name, value string
		address     bool
	}{
		{"RAILTOKEN_REDIS_ADDR", c.addr, true},
		{"RAILTOKEN_REDIS_MASTER", c.master, true},
		{"RAILTOKEN_REDIS_SENTINELS", c.sentinels, true},
		{"RAILTOKEN_REDIS_CLUSTER", c.cluster, true},
		{"RAILTOKEN_LOCK_NODES", c.nodes, false},
		{"RAILTOKEN_REDIS_USERNAME", c.user, false},
		{"RAILTOKEN_REDIS_DB", text(c.db), false},
		{"RAILTOKEN_LANES", text(c.lanes), false},
		{"RAILTOKEN_REDIS_TLS", text(c.tls), false},
		{"RAILTOKEN_NAMESPACE", c.namespace, false},
		{"RAILTOKEN_NAMESPACE_TASKS", text(c.namespaceTasks), false},
	} {
		if v.value != "" || addresses && v.address {
			if err := os.Setenv(v.name, v.value); err != nil {
				return fmt.Errorf("set %s: %w", v.name, err)
			}
		}
	}
	var err error
	if c.config, err = worker.FromEnv(); err != nil {
		return fmt.Errorf("where is Redis? Give --redis host:port, or the variables of the workers:\n%w", err)
	}
	mod := c.config.Redis.Tune
	c.config.Redis.Tune = func(o *redis.UniversalOptions) {
		o.MaxRetries, o.DialTimeout, o.DialerRetries = 1, 3*time.Second, 1
		if mod != nil {
			mod(o)
		}
	}
	c.config.LockRedis.Tune = c.config.Redis.Tune
	return nil
}

// text returns a value for a variable; empty for a zero value.
func text[T int | bool](v T) string {
	var zero T
	if v == zero {
		return ""
	}
	switch v := any(v).(type) {
	case int:
		return strconv.Itoa(v)
	default:
		return "true"
	}
}

// close closes the clients.
func (c *connection) close() {
	errs := []error{c.inspector.Close()}
	for _, s := range c.servers {
		errs = append(errs, s.Close())
	}
	if c.locks != nil {
		errs = append(errs, c.locks.Close())
	}
	_ = errors.Join(append(errs, c.tasks.Close())...) // the command has its answer
}

// version returns the version of this build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return cmp.Or(info.Main.Version, "unknown")
}
