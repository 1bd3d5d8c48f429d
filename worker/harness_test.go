package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// patience bounds every wait for an event in real time.
const patience = 20 * time.Second

// order is the payload of the tests' tasks.
type order struct {
	ID string `json:"id"`
}

func (o order) keys() []string { return []string{"order:" + o.ID} }

// orderTask returns a task with an order as its payload.
func orderTask(t testing.TB, taskType, id string) *asynq.Task {
	t.Helper()
	payload, err := json.Marshal(order{id})
	if err != nil {
		t.Fatal(err)
	}
	return asynq.NewTask(taskType, payload)
}

// handle registers a handler that locks its order.
func handle(t testing.TB, w *Worker, taskType string, run func(context.Context, order) error) {
	t.Helper()
	if err := Handle(w, taskType, Handler[order]{Run: run, Keys: order.keys}); err != nil {
		t.Fatal(err)
	}
}

// virtual returns a worker that lives with its fake Redis in the synctest bubble around the test. The hooks are between
// asynq and that Redis, behind the worker's own.
func virtual(t *testing.T, cfg Config, hooks ...redis.Hook) (*Worker, *miniredis.Miniredis) {
	t.Helper()
	cfg.Redis = Redis{Addr: "127.0.0.1:6379"}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.close(); err != nil { // it has not connected to anything
		t.Fatal(err)
	}
	t.Cleanup(func() { time.Sleep(time.Second) }) // go-redis sleeps before it sees that a subscription is closed
	m, _ := redistest.Virtual(t)
	w.tasks, w.lockConn = redistest.Patient(t, m), redistest.Patient(t, m)
	for _, h := range hooks {
		w.tasks.AddHook(h)
	}
	if w.locker, err = taskrun.OnClient(w.lockConn, cfg.MaxHold, cfg.AllowEviction, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.attach(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return w, m
}

// start starts a worker.
func start(t testing.TB, w *Worker) {
	t.Helper()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lines is a slog.Handler's output, one line for each record.
type lines chan string

func newLines() (*slog.Logger, lines) {
	l := make(lines, 1000)
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})), l
}

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// all returns what was written so far.
func (l lines) all() string {
	var b strings.Builder
	for {
		select {
		case line := <-l:
			b.WriteString(line)
		default:
			return b.String()
		}
	}
}

// setEnv gives the test an environment in which exactly these of our variables are set.
func setEnv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, envPrefix+"_") {
			t.Setenv(name, "") // has it restored after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		t.Setenv(name, vars[name])
	}
}

// wantParts checks that an error has each part in its text.
func wantParts(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
}

// nothing is a handler that has nothing to do.
func nothing(context.Context, order) error { return nil }

// isLook reports whether an idle server looks for tasks by a command: by a fetch, or by asking whether one would find any.
func isLook(cmd redis.Cmder) bool {
	return isFetch(cmd) || cmd.Name() == "exists" && strings.HasSuffix(fmt.Sprint(cmd.Args()[1]), ":pending")
}

// isFetch reports whether a command takes a task from a queue for asynq.
func isFetch(cmd redis.Cmder) bool {
	args := cmd.Args()
	if cmd.Name() != "evalsha" || len(args) < 3 {
		return false
	}
	n, _ := args[2].(int)
	var keys []string
	for _, key := range args[3 : 3+n] {
		keys = append(keys, fmt.Sprint(key))
	}
	kind, _ := broker.KindOf("", keys)
	return kind == broker.Fetch
}
