package e2e_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// childVariable makes the test binary run as a worker: its value is the address of the Redis that serves as database.
const childVariable = "E2E_DATABASE"

// hangVariable makes the child's handlers hang instead of working, so that it can be killed while it holds locks.
const hangVariable = "E2E_HANG"

func TestMain(m *testing.M) {
	logging.Disable() // go-redis tells of every outage, and the outages here are meant
	if kind := os.Getenv(stallVariable); kind != "" {
		if err := runStalled(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if db := os.Getenv(childVariable); db != "" {
		if err := runChild(db, os.Getenv(hangVariable) != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Half of these tests mostly wait: for leases, timers and servers that are away. On few cores more of them run side by side.
	redistest.SideBySide(max(6, runtime.GOMAXPROCS(0)))
	leaktest.Verify(m)
}

// nameVariable gives the child a name, which tells its effects from those of other processes.
const nameVariable = "E2E_NAME"

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
	if changed := os.Getenv(changedVariable); changed != "" {
		return runAttached(ctx, db, changed)
	}
	cfg, err := worker.FromEnv()
	if err != nil {
		return err
	}
	cfg.RetryDelayFunc = soon
	for _, order := range []middleware.Order{middleware.FIFO, middleware.StrictFIFO} {
		if order.String() == os.Getenv(orderVariable) {
			cfg.Strategy = middleware.Requeue{Order: order}
		}
	}
	w, err := worker.New(cfg)
	if err != nil {
		return err
	}
	if mark := os.Getenv(itemsVariable); mark != "" {
		err = handleItems(w, db, mark)
	} else if os.Getenv(supersedeVariable) != "" {
		err = handleSuperseding(w, db)
	} else {
		err = worker.Handle(w, "work", worker.Handler[order]{
			Keys: func(o order) []string { return []string{o.Order} },
			Run:  func(ctx context.Context, o order) error { return effect(ctx, db, o, hang) },
		})
	}
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

// soon is when a task that has failed runs again: after a crash asynq would let it wait for 15 to 45 s.
func soon(int, error, *asynq.Task) time.Duration { return time.Second }

// changedVariable makes the child a plain asynq server with locks attached, of an asynq whose scripts of a kind are not known, or with plainLocks.
const changedVariable = "E2E_CHANGED"

// plainLocks has the locks taken and released by calls of their own, and never with the tasks.
const plainLocks = "locks"

// orderKey is the key of a task.
var orderKey = middleware.PayloadKey(func(o order) string { return o.Order })

var kinds = map[string][]broker.Kind{"fetch": {broker.Fetch}, "acks": {broker.Ack}}

// orderVariable makes the child run the tasks of a key in an order: FIFO or StrictFIFO.
const orderVariable = "E2E_ORDER"

// runAttached is such a worker process.
func runAttached(ctx context.Context, db *redis.Client, changed string) error {
	_, client, err := fromEnvironment()
	if err != nil {
		return err
	}
	defer client.Close()
	opts := attach.Options{TTL: 2 * time.Second, AllowUnknownAsynq: len(kinds[changed]) > 0, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if changed == plainLocks {
		locker, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			return err
		}
		defer locker.Close()
		opts.Locker = locker
	}
	rt, err := attach.New(client, asynq.Config{
		Concurrency: 16, Queues: map[string]int{"audit": 1, "allocate": 1}, LogLevel: asynq.FatalLevel, RetryDelayFunc: soon,
	}, opts)
	if err != nil {
		return err
	}
	lock := rt.Lock(orderKey)
	other := asynqtest.OtherVersion{UniversalClient: rt.Client(), Changed: func(sum string, keys []string) bool {
		kind, _ := broker.KindOf(sum, keys)
		return slices.Contains(kinds[changed], kind)
	}}
	server := asynq.NewServerFromRedisClient(other, rt.Config())
	err = server.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var o order
		if err := json.Unmarshal(task.Payload(), &o); err != nil {
			return err
		}
		return effect(ctx, db, o, false)
	})))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	rt.Stop()
	server.Shutdown()
	return rt.Close()
}

// The database: what a handler reads on entry and writes at its end are two steps, so that two handlers in one order would lose an
// update. Both steps check the fencing token.
var (
	// claimScript raises the order's token and reads its revision. KEYS 1 token, 2 revisions, 3 effects; ARGV 1 token, 2 order, 3 task.
	claimScript = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
  return redis.error_reply('FENCED')
end
redis.call('SET', KEYS[1], ARGV[1])
return {tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0'), redis.call('HEXISTS', KEYS[3], ARGV[3])}
`)
	// commitScript writes the revision that the handler made and notes the task, also among those of its order. KEYS as before; ARGV 1
	// token, 2 order, 3 task, 4 revision.
	commitScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED')
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('RPUSH', 'done:' .. ARGV[2], ARGV[3])
return redis.call('HINCRBY', KEYS[3], ARGV[3], 1)
`)
	// enterScript notes who works in an order, and counts an overlap when somebody who lives does so already. A process that was killed
	// at its work left a note behind and counts no more. KEYS 1 who is inside, 2 overlaps, 3 the dead; ARGV 1 order, 2 process, 3 run.
	enterScript = redis.NewScript(`
local who = redis.call('HGET', KEYS[1], ARGV[1])
if who and redis.call('SISMEMBER', KEYS[3], string.match(who, '^[^/]*')) == 0 then
  redis.call('INCR', KEYS[2])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '/' .. ARGV[3])
`)
	// leaveScript takes the note back, unless another is inside. KEYS and ARGV as of enterScript.
	leaveScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] .. '/' .. ARGV[3] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
`)
)

// effect claims the order with its fencing token, works, and adds one to the order's revision. It counts handlers that meet in an order.
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
	keys := []string{"fence:" + o.Order, "revisions", "effects"}
	seen, err := claimScript.Run(ctx, db, keys, token, o.Order, o.Task).Int64Slice()
	if err != nil || seen[1] == 1 { // in an earlier run the effect came through
		return err
	}
	inside, run := []string{"inside", "overlaps", "dead"}, rand.Text()
	if err := enterScript.Run(ctx, db, inside, o.Order, os.Getenv(nameVariable), run).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	leaveScript.Run(context.WithoutCancel(ctx), db, inside, o.Order, os.Getenv(nameVariable), run)
	return commitScript.Run(ctx, db, keys, token, o.Order, o.Task, seen[0]+1).Err()
}

// newWorker returns a worker with one handler, and a producer, both closed at the end of the test.
func newWorker(tb testing.TB, cfg worker.Config, run func(context.Context, order) error) (*worker.Worker, *worker.Client) {
	tb.Helper()
	w, err := worker.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.Shutdown() })
	if err := worker.Handle(w, "work", worker.Handler[order]{Keys: func(o order) []string { return []string{o.Order} }, Run: run}); err != nil {
		tb.Fatal(err)
	}
	opts := attach.ProducerOptions{}
	if cfg.Redis.Lanes > 0 { // the keys tell the lanes
		opts.Keys = map[string]middleware.KeyFunc{"work": middleware.PayloadKey(func(o order) string { return o.Order })}
	}
	producer, err := worker.NewClientWith(cfg.Redis, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = producer.Close() })
	return w, producer
}

// child is a worker in a process of its own.
type child struct {
	*testing.T
	cmd  *exec.Cmd
	name string
	log  lines
}

// childNumber makes the names of processes different.
var childNumber atomic.Int64

// startChild starts a worker process and returns when it works. It is killed at the end of the test.
func startChild(t *testing.T, redisAddr, dbAddr string, hang bool, env ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, exe, redisAddr, dbAddr, hang, env...)
}

// startProgram is startChild with another test binary of this package.
func startProgram(t *testing.T, exe, redisAddr, dbAddr string, hang bool, env ...string) *child {
	t.Helper()
	name := fmt.Sprint("worker-", childNumber.Add(1))
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"="+dbAddr, "RAILTOKEN_REDIS_ADDR="+redisAddr, nameVariable+"="+name)
	cmd.Env = append(cmd.Env, namespaceVariables(*suiteNamespace)...)
	if hang {
		cmd.Env = append(cmd.Env, hangVariable+"=1")
	}
	cmd.Env = append(cmd.Env, env...)
	c := &child{T: t, cmd: cmd, name: name}
	cmd.Stderr = &c.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("%s: %s", name, c.log.buf.String())
		}
	})
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

// stop ends the process in order, and returns when it is gone.
func (c *child) stop() {
	c.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.Fatalf("the worker process did not end in order: %v", err)
	}
}
