// Command healthcheck tells whether a worker on this host is at work: whether it told Redis so within the last seconds. Its exit
// status is 0 when one is, and 1 otherwise. It reads the same RAILTOKEN_* variables as the worker.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/worker"
)

// timeout bounds the search for Redis, and each call of it afterwards.
const timeout = 2 * time.Second

func main() {
	redis.SetLogger(quiet{})
	if err := check(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// quiet keeps go-redis from writing a line for each attempt to connect.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// check looks for a worker of this host in the Redis of the environment.
func check(ctx context.Context) error {
	cfg, err := worker.FromEnv()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("healthcheck: the name of this host: %w", err)
	}
	return active(ctx, cfg.Redis, host)
}

// active returns nil when a worker of the host is at work, and otherwise why it is thought not to be.
func active(ctx context.Context, at worker.Redis, host string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := connect(at)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("healthcheck: Redis at %s: %w", at, err)
	}
	servers, err := asynq.NewInspectorFromRedisClient(client).Servers() // those that have told of themselves within the last 10 s
	if err != nil {
		return fmt.Errorf("healthcheck: Redis at %s: %w", at, err)
	}
	for _, s := range servers {
		if s.Host == host && s.Status == "active" {
			return nil
		}
	}
	return fmt.Errorf("healthcheck: no worker on host %q is active in Redis at %s", host, at)
}

// connect returns a client that does not try a second time.
func connect(at worker.Redis) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: []string{at.Addr}, Username: at.Username, Password: string(at.Password), DB: at.DB, TLSConfig: at.TLSConfig,
		MasterName: at.Master, SentinelPassword: string(at.SentinelPassword), IsClusterMode: len(at.Cluster) > 0,
		MaxRetries: -1, ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true,
	}
	switch {
	case len(at.Cluster) > 0:
		o.Addrs = at.Cluster
	case at.Master != "":
		o.Addrs = at.Sentinels
	}
	if o.TLSConfig == nil && at.TLS {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.NewUniversalClient(o)
}
