package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

// childVariable makes the test binary run as a worker: its value is the address of the Redis that serves as database.
const childVariable = "E2E_DATABASE"

// hangVariable makes the child's handlers hang instead of working, so that it can be killed while it holds locks.
const hangVariable = "E2E_HANG"

func TestMain(m *testing.M) {
	logging.Disable() // go-redis tells of every outage, and the outages here are meant
	if db := os.Getenv(childVariable); db != "" {
		if err := runChild(db, os.Getenv(hangVariable) != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// order is the payload of all tasks in these tests.
type order struct {
	Order string `json:"order"`
	Task  string `json:"task"`
}

// runChild is a worker process: configured by RAILTOKEN_* alone, it works until SIGTERM.
func runChild(dbAddr string, hang bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db := redis.NewClient(&redis.Options{Addr: dbAddr})
	defer db.Close()
	cfg, err := worker.FromEnv()
	if err != nil {
		return err
	}
	// After a crash asynq would let a task wait for 15 to 45 s.
	cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	w, err := worker.New(cfg)
	if err != nil {
		return err
	}
	err = worker.Handle(w, "work", worker.Handler[order]{
		Keys: func(o order) []string { return []string{o.Order} },
		Run:  func(ctx context.Context, o order) error { return effect(ctx, db, o, hang) },
	})
	if err != nil {
		return err
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return w.Shutdown()
}

// effectScript is a database transaction: it checks the fencing token, and records the effect of a task once.
//
// KEYS 1 the order's largest token, 2 the effects, 3 the refusals; ARGV 1 token, 2 task.
var effectScript = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
  redis.call('INCR', KEYS[3])
  return redis.error_reply('FENCED')
end
redis.call('SET', KEYS[1], ARGV[1])
return redis.call('HINCRBY', KEYS[2], ARGV[2], redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 and 0 or 1)
`)

// effect claims the order with its fencing token, works, and records the effect. It counts how many handlers are in an order.
func effect(ctx context.Context, db *redis.Client, o order, hang bool) error {
	lease, ok := locking.FromContext(ctx)
	if !ok {
		return fmt.Errorf("no lease")
	}
	token, err := lease.Fence(ctx)
	if err != nil {
		return err
	}
	if err := db.RPush(ctx, "started", o.Task).Err(); err != nil {
		return err
	}
	if hang {
		select {} // until the process is killed
	}
	inside := "inside:" + o.Order
	if n := db.Incr(ctx, inside).Val(); n > 1 {
		db.Incr(ctx, "overlaps")
	}
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	db.Decr(context.WithoutCancel(ctx), inside)
	return effectScript.Run(ctx, db, []string{"fence:" + o.Order, "effects", "fenced"}, token, o.Task).Err()
}

// child is a worker in a process of its own.
type child struct {
	*testing.T
	cmd *exec.Cmd
}

// startChild starts a worker process and returns when it works. It is killed at the end of the test.
func startChild(t *testing.T, redisAddr, dbAddr string, hang bool, env ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"="+dbAddr, "RAILTOKEN_REDIS_ADDR="+redisAddr)
	if hang {
		cmd.Env = append(cmd.Env, hangVariable+"=1")
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{T: t, cmd: cmd}
	t.Cleanup(c.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the worker process did not start: %q, %v", line, err)
	}
	return c
}

// kill ends the process at once, as a crash does.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}
