package prometheus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/middleware"
)

// work is the payload of a task in an incident: it holds Key for Hold.
type work struct {
	Key  string
	Hold time.Duration
}

// installation is workers and their Redis in the virtual time of a synctest bubble, whose metrics are recorded.
type installation struct {
	*testing.T
	redis   *miniredis.Miniredis
	hung    atomic.Bool
	workers []*incidentWorker
	rec     *recording

	recovery attach.Recovery
}

// incidentWorker is a worker with its exporter.
type incidentWorker struct {
	name     string
	dead     atomic.Bool
	registry *client.Registry
	server   *asynq.Server
	attached *attach.Attached
}

// slotsOfWorker is the Concurrency of each worker.
const slotsOfWorker = 4

func newInstallation(t *testing.T, recovery attach.Recovery) *installation {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Second) }) // go-redis sleeps before it sees that a subscription is closed
	m, _ := redistest.Virtual(t)
	in := &installation{T: t, redis: m, rec: newRecording(), recovery: recovery}
	for _, name := range []string{"1", "2"} {
		in.workers = append(in.workers, in.start(name))
	}
	return in
}

// client returns a client of Redis whose calls fail as its worker's connections do.
func (in *installation) client(dead *atomic.Bool) *redis.Client {
	c := redistest.Patient(in.T, in.redis)
	c.AddHook(cut(func(ctx context.Context) error {
		switch {
		case dead.Load():
			return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the process is dead")}
		case in.hung.Load():
			select {
			case <-time.After(3 * time.Second): // go-redis's ReadTimeout
				return os.ErrDeadlineExceeded
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}))
	return c
}

func (in *installation) start(name string) *incidentWorker {
	in.Helper()
	w := &incidentWorker{name: name, registry: client.NewRegistry()}
	inspector, err := inspect.New(inspect.Options{Tasks: in.client(&w.dead)})
	if err != nil {
		in.Fatal(err)
	}
	in.Cleanup(func() { _ = inspector.Close() })
	collector := prometheus.New(prometheus.Options{Inspector: inspector})
	w.registry.MustRegister(collector)
	c := in.client(&w.dead)
	w.attached, err = attach.New(c, asynq.Config{
		Concurrency: slotsOfWorker, TaskCheckInterval: 500 * time.Millisecond, Queues: map[string]int{"a": 1, "b": 1},
		LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
	}, attach.Options{Recovery: in.recovery, Observer: collector.Observe, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		in.Fatal(err)
	}
	locked := w.attached.Lock(middleware.PayloadKey(func(o work) string { return o.Key }))
	w.server = asynq.NewServerFromRedisClient(w.attached.Client(), w.attached.Config())
	if err := w.server.Start(locked(asynq.HandlerFunc(run))); err != nil {
		in.Fatal(err)
	}
	in.Cleanup(func() {
		w.dead.Store(false)
		w.server.Shutdown()
		_ = w.attached.Close()
	})
	return w
}

func run(ctx context.Context, task *asynq.Task) error {
	var o work
	if err := json.Unmarshal(task.Payload(), &o); err != nil {
		return err
	}
	select {
	case <-time.After(o.Hold):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue enqueues a task in one of the queues.
func (in *installation) enqueue(key string, hold time.Duration) {
	in.Helper()
	payload, err := json.Marshal(work{key, hold})
	if err != nil {
		in.Fatal(err)
	}
	asynqtest.Enqueue(in.T, in.redis, asynq.NewTask("work", payload), asynq.Queue([]string{"a", "b"}[rand.IntN(2)]), asynq.MaxRetry(5))
}

// pass lets time pass. Each step may enqueue tasks. The metrics are scraped every 15 s.
func (in *installation) pass(d, step time.Duration, each func(n int)) {
	in.Helper()
	for n := range int(d / step) {
		if each != nil {
			each(n)
		}
		time.Sleep(step)
		if time.Since(in.rec.last) >= scrapeInterval {
			in.rec.scrape(in)
		}
	}
}

// quiet lets time pass with a little work, none of which meets a held key.
func (in *installation) quiet(d time.Duration) {
	in.Helper()
	in.pass(d, 5*time.Second, func(n int) { in.enqueue(fmt.Sprint("free:", n), 100*time.Millisecond) })
}

// hex40 is an ID as Redis has them.
var hex40 = strings.Repeat("0a", 20)

// cut is a redis.Hook that fails calls before they are sent.
type cut func(context.Context) error

func (c cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := c(ctx); err != nil {
			return redistest.Fail(cmd, err)
		}
		return next(ctx, cmd)
	}
}

func (c cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "info" { // the fake lacks what the Inspector reads
			for n, text := range []string{
				"# Server\r\nrun_id:" + hex40 + "\r\nuptime_in_seconds:86400\r\nredis_version:7.2.0\r\n", "# Replication\r\nrole:master\r\nmaster_replid:" + hex40 + "\r\nmaster_replid2:" + hex40 + "\r\n",
				"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
			} {
				cmds[n].(*redis.StringCmd).SetVal(text)
			}
			return nil
		}
		if err := c(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}
