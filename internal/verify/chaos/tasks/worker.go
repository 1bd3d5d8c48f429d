package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// Workers is how many processes run tasks.
const Workers = 4

// concurrency is how many tasks a worker process runs at a time.
const concurrency = 16

// Redis is how a process reaches the Redis of the tasks: through the sentinels, and a link to each server.
type Redis struct {
	Master    string
	Sentinels []string
	Links     map[string]string // server: link
}

// Client returns a client of the master.
func (r Redis) Client() *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: r.Master, SentinelAddrs: r.Sentinels,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if link := r.Links[addr]; link != "" {
				addr = link
			}
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
		},
	})
}

// Settings are those of a worker process, which it gets as JSON.
type Settings struct {
	Subject int
	Name    string
	Redis   Redis
	Ledger  string
}

// retry is after which time a task runs again that has failed. asynq counts whole seconds. One that fails because its key is held tries
// again ever more rarely.
func retry(n int, _ error, _ *asynq.Task) time.Duration {
	return time.Second * time.Duration(1+rand.IntN(min(n, 9)+1))
}

// Work runs tasks until ctx ends.
func (s Settings) Work(ctx context.Context, log io.Writer) error {
	subject := Subjects[s.Subject]
	client, ledger := s.Redis.Client(), redis.NewClient(&redis.Options{Addr: s.Ledger})
	defer func() { _, _ = client.Close(), ledger.Close() }()
	h := handler{name: s.Name, ledger: Ledger{ledger, subject.Checks}, client: client, locks: subject.Locks}
	cfg := asynq.Config{Concurrency: concurrency, Queues: Queues, LogLevel: asynq.FatalLevel, RetryDelayFunc: retry}
	if subject.Locks != Ordered {
		server := asynq.NewServerFromRedisClient(client, cfg)
		if err := server.Start(h); err != nil {
			return err
		}
		<-ctx.Done()
		server.Shutdown()
		return nil
	}
	rt, err := attach.New(client, cfg, attach.Options{
		TTL: TTL, Recovery: attach.Recovery{After: silent}, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	for _, k := range Kinds {
		lock, err := rt.LockWith(attach.LockOptions{Key: keyOf, Strategy: k.Strategy})
		if err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		mux.Handle(k.Name, lock(h))
	}
	server := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	if err := server.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	rt.Stop()
	server.Shutdown()
	return rt.Close()
}

// keyOf is the key function of all handlers.
var keyOf = middleware.PayloadKey(func(t Task) string { return t.Key })

// decode reads the payload of a task.
func decode(payload []byte) (t Task, err error) {
	err = json.Unmarshal(payload, &t)
	return t, err
}
