package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/worker"
)

// stallVariable makes the child a server of asynq alone, of attach or of worker, which says how long its shutdown took.
const stallVariable = "E2E_STALL"

// stalledTasks are the tasks of that child: half of them end when it is told to end, the others when they are cancelled.
const stalledTasks = 20

// runStalled is that child.
func runStalled(kind string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var started sync.WaitGroup
	started.Add(stalledTasks)
	handler := func(run context.Context, id string) error {
		started.Done()
		if strings.HasPrefix(id, "brief") {
			<-ctx.Done()
			return nil
		}
		<-run.Done()
		return run.Err()
	}
	plain := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return handler(ctx, string(t.Payload())) })
	at, client, err := fromEnvironment()
	if err != nil {
		return err
	}
	defer client.Close()
	cfg := asynq.Config{Concurrency: stalledTasks, ShutdownTimeout: 2 * time.Second, LogLevel: asynq.FatalLevel}
	var shutdown, closes func()
	switch kind {
	case "asynq":
		s := asynq.NewServerFromRedisClient(client, cfg)
		if err := s.Start(plain); err != nil {
			return err
		}
		shutdown, closes = s.Shutdown, func() {}
	case "attach":
		a, err := attach.New(client, cfg, attach.Options{})
		if err != nil {
			return err
		}
		s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		if err := s.Start(a.Lock(stallKey)(plain)); err != nil {
			return err
		}
		shutdown = func() {
			a.Stop()
			s.Shutdown()
		}
		closes = func() { _ = a.Close() }
	default:
		w, err := worker.New(worker.Config{
			Redis: at, Concurrency: stalledTasks, ShutdownTimeout: 2 * time.Second,
		})
		if err != nil {
			return err
		}
		if err := w.HandleTask("stall", plain, stallKey); err != nil {
			return err
		}
		if err := w.Start(ctx); err != nil {
			return err
		}
		shutdown, closes = func() { _ = w.Shutdown() }, func() {}
	}
	started.Wait()
	fmt.Println("ready")
	<-ctx.Done()
	<-time.After(500 * time.Millisecond) // the brief ones have returned
	shutdown()
	began := time.Now()
	closes()
	fmt.Println("close", time.Since(began).Milliseconds())
	return nil
}

func stallKey(_ context.Context, t *asynq.Task) ([]string, error) {
	return []string{string(t.Payload())}, nil
}

// Redis stands still from before the signal until after the exit.
func TestShutdownIsBoundedWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	took := map[string]time.Duration{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, kind := range []string{"asynq", "attach", "worker"} {
		all.Go(func() {
			total, closing, err := stalledShutdown(t, kind)
			t.Logf("%s: %v from the signal to the exit, %v of it in Close", kind, total, closing)
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if closing > 8500*time.Millisecond {
				t.Errorf("%s: Close took %v; want 8s at most", kind, closing)
			}
			mu.Lock()
			defer mu.Unlock()
			took[kind] = total
		})
	}
	all.Wait()
	for _, kind := range []string{"attach", "worker"} {
		if most := took["asynq"] + 12*time.Second; took[kind] > most {
			t.Errorf("%s exits after %v, and asynq alone after %v", kind, took[kind], took["asynq"])
		}
	}
}

// stalledShutdown has a child end while its Redis stands still, and checks that its tasks are all there afterwards.
func stalledShutdown(t *testing.T, kind string) (total, closing time.Duration, err error) {
	server := startShared(t)
	client := named(t, server.Client(t))
	tasks := asynq.NewClientFromRedisClient(client)
	for i := range stalledTasks {
		id := fmt.Sprintf("brief-%d", i)
		if i%2 == 0 {
			id = fmt.Sprintf("long-%d", i)
		}
		if _, err := tasks.Enqueue(asynq.NewTask("stall", []byte(id)), asynq.TaskID(id), asynq.Retention(time.Hour)); err != nil {
			return 0, 0, err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), stallVariable+"="+kind, "RAILTOKEN_REDIS_ADDR="+server.Addr())
	cmd.Env = append(cmd.Env, namespaceVariables(*suiteNamespace)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return 0, 0, fmt.Errorf("the child is not ready: %w", cmd.Wait())
	}
	server.Pause()
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, 0, err
	}
	for lines.Scan() {
		var ms int64
		if _, err := fmt.Sscanf(lines.Text(), "close %d", &ms); err == nil {
			closing = time.Duration(ms) * time.Millisecond
		}
	}
	err = cmd.Wait()
	total = time.Since(began)
	server.Resume()
	if err != nil {
		return total, closing, err
	}
	inspector := asynq.NewInspectorFromRedisClient(client)
	for i := range stalledTasks {
		for _, id := range []string{"brief-%d", "long-%d"}[1-i%2 : 2-i%2] {
			info, err := inspector.GetTaskInfo("default", fmt.Sprintf(id, i))
			if err != nil || info.State == asynq.TaskStateArchived {
				return total, closing, fmt.Errorf("a task is lost: %+v: %w", info, err)
			}
		}
	}
	return total, closing, nil
}
