package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	leaktest.Verify(m)
}

const limit = 30 * time.Second

// errBroken is why tasks fail.
var errBroken = errors.New("the warehouse does not answer")

// system is a Redis with a worker on it. The command finds it by the environment.
type system struct {
	*testing.T
	server *redistest.Server
	client *redis.Client
	events chan middleware.Event
	worker *worker.Worker

	unreported bool // the worker reports nothing
}

func newSystem(t *testing.T, args ...string) *system {
	t.Helper()
	if args == nil {
		args = []string{"--appendonly", "yes"}
	}
	server := redistest.Start(t, args...)
	t.Setenv("RAILTOKEN_REDIS_ADDR", server.Addr())
	return &system{T: t, server: server, client: server.Client(t), events: make(chan middleware.Event, 1000)}
}

// job is the payload of the tasks.
type job struct {
	Key   string
	Fails bool // in its handler
}

// work runs a worker until the end of the test.
func (s *system) work() *system {
	s.Helper()
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: s.server.Addr()}, Logger: slog.New(slog.DiscardHandler), Concurrency: 4,
		ShutdownTimeout: 10 * time.Millisecond, DisableReports: s.unreported,
		Observer: func(_ context.Context, e middleware.Event) {
			select {
			case s.events <- e:
			default:
			}
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	for name, strategy := range map[string]middleware.Strategy{
		"audit":   middleware.Requeue{},
		"strict":  middleware.Requeue{Order: middleware.StrictFIFO},
		"limited": middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
	} {
		if err := worker.Handle(w, name, worker.Handler[job]{
			Strategy: strategy, Keys: func(j job) []string { return []string{j.Key} },
			Run: func(ctx context.Context, j job) error {
				if j.Fails {
					return errBroken
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}); err != nil {
			s.Fatal(err)
		}
	}
	if err := w.Start(context.Background()); err != nil {
		s.Fatal(err)
	}
	s.worker = w
	s.Cleanup(func() { _ = w.Shutdown() })
	return s
}

// task adds a task and waits for an event of it.
func (s *system) task(kind middleware.EventKind, taskType, key, id string) {
	s.Helper()
	s.add(taskType, id, job{Key: key})
	s.await(kind, id)
}

// await waits for an event of a task.
func (s *system) await(kind middleware.EventKind, id string) {
	s.Helper()
	for {
		if e := redistest.Receive(s, s.events, limit); e.Kind == kind && e.Task.ID == id {
			return
		}
	}
}

// add adds a task.
func (s *system) add(taskType, id string, j job) {
	s.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		s.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(s.client)
	if _, err := client.Enqueue(asynq.NewTask(taskType, data), asynq.TaskID(id), asynq.Timeout(time.Minute)); err != nil {
		s.Fatal(err)
	}
}

// behindFailed has two tasks of a key wait in order behind one that has failed.
func (s *system) behindFailed(key string) *system {
	s.Helper()
	s.add("strict", "broken", job{Key: key, Fails: true})
	s.until("the first has failed", func() bool { return s.state("broken") == "retry" })
	s.task(middleware.Parked, "strict", key, "next")
	s.task(middleware.Parked, "strict", key, "last")
	return s
}

// crowd has task first hold a key that the others wait for.
func (s *system) crowd(key string, waiters ...string) *system {
	s.Helper()
	s.task(middleware.Acquired, "audit", key, "first")
	for _, id := range waiters {
		s.task(middleware.Parked, "audit", key, id)
	}
	return s
}

// reported waits until the worker has reported a number of conflicts, and with them who holds what.
func (s *system) reported(conflicts int) {
	s.Helper()
	s.until("the worker has reported", func() bool {
		for _, name := range s.client.Keys(s.Context(), "railtoken:worker:*").Val() {
			if strings.Contains(s.client.Get(s.Context(), name).Val(), fmt.Sprintf(`"conflicts":%d,`, conflicts)) {
				return true
			}
		}
		return false
	})
}

// until waits until something is so.
func (s *system) until(what string, so func() bool) {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !so(); <-tick.C {
		if time.Now().After(end) {
			s.Fatalf("it was not so in time: %s", what)
		}
	}
}

// state returns asynq's state of a task.
func (s *system) state(id string) string {
	return s.client.HGet(s.Context(), "asynq:{default}:t:"+id, "state").Val()
}

// call runs the command.
func call(t *testing.T, args ...string) (out, errOut string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(""), &o, &e)
	return o.String(), e.String(), status
}

// must runs the command, which must end with this status, and returns what it prints.
func must(t *testing.T, status int, args ...string) string {
	t.Helper()
	out, errOut, got := call(t, args...)
	if got != status {
		t.Fatalf("railtoken %s ends with %d, want %d: %s%s", strings.Join(args, " "), got, status, out, errOut)
	}
	return out + errOut
}

// buffer may be written and read at the same time.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// changing is what differs between two runs of a test.
var changing = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "<time>"},
	{regexp.MustCompile(`"(id|host|worker|config|version|owner|label|holder)": "[^"]*"`), `"$1": "<text>"`},
	{regexp.MustCompile(`"(pid|fence|latency_ms|uptime_seconds|clock_ahead_ms|remaining_seconds|conflicts)": -?[0-9.]+`), `"$1": <number>`},
	{regexp.MustCompile(`master  +\S+`), "master  <version>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<addr>"},
	{regexp.MustCompile(`(?m)^(fence +)\d+`), "$1<number>"},
	{regexp.MustCompile(`(?m)^(owner +)\S+`), "$1<owner>"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?`), "<clock>"},
	{regexp.MustCompile(`[\w.-]+/\d{2,}( +|$|\n|,|\)|/)`), "<worker>$1"},
	{regexp.MustCompile(`(\S+)  +[0-9a-f]{8} {2}`), "<version>  <config>  "},
	{regexp.MustCompile(`[+-]\d+ms`), "<duration>"},
	{regexp.MustCompile(`\b(\d+m\d+s|\d+h\d+m|[0-9.]+m?s)\b`), "<duration>"},
	{regexp.MustCompile(` {2,}`), "  "},
}

// golden compares what was printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for _, c := range changing {
		got = c.pattern.ReplaceAllString(got, c.name)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}
