package inspect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
)

// The variables that make this test program a worker: the Redis of its tasks, and its lock servers, if there are any.
const (
	childTasks = "INSPECT_TEST_TASKS"
	childNodes = "INSPECT_TEST_NODES"
)

// lastWrites is how many writes a child tries after the end of its lease.
const lastWrites = 100

// childMain is a worker on the queue "child". Its handler claims the resource and writes until its context ends. Then
// it tries more writes and prints how many of them have landed.
func childMain() error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(childTasks)})
	opts := attach.Options{}
	if addrs := os.Getenv(childNodes); addrs != "" {
		locker, err := redlockOf(strings.Split(addrs, ","))
		if err != nil {
			return err
		}
		opts.Locker = locking.NewGate(locker, locking.GateOptions{})
	}
	a, err := attach.New(client, asynq.Config{
		Queues: map[string]int{"child": 1}, Concurrency: 2, TaskCheckInterval: 10 * time.Millisecond,
		LogLevel: asynq.FatalLevel,
	}, opts)
	if err != nil {
		return err
	}
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		token, err := lease.Fence(ctx)
		if err != nil {
			return err
		}
		r := resource{client}
		if ok, err := r.claim(ctx, token); err != nil || !ok {
			return errors.Join(err, errors.New("another holder has claimed the resource"))
		}
		fmt.Println("holds", token)
		for ctx.Err() == nil {
			_, _ = r.write(context.WithoutCancel(ctx), token)
		}
		by, _ := errors.AsType[*locking.DeposedError](context.Cause(ctx))
		fmt.Println("cause", by, errors.Is(context.Cause(ctx), locking.ErrLost))
		landed := 0
		for range lastWrites {
			if ok, err := r.write(context.WithoutCancel(ctx), token); err != nil || ok {
				landed++
			}
		}
		fmt.Println("landed", landed)
		return nil
	})
	srv := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := srv.Start(a.Lock(byPayload)(handler)); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test ends
	return nil
}

func redlockOf(addrs []string) (*locking.Redlock, error) {
	return locking.NewRedlock(optionsOf(addrs), unguarded)
}

func optionsOf(addrs []string) (nodes []*redis.Options) {
	for _, addr := range addrs {
		nodes = append(nodes, &redis.Options{Addr: addr})
	}
	return nodes
}

// child is a worker in a process of its own.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func startChild(t *testing.T, tasks string, nodes []string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), childTasks+"="+tasks, childNodes+"="+strings.Join(nodes, ","))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t, cmd, make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = stdin.Close()
		<-read
		_ = cmd.Wait()
	})
	return c
}

// line returns the rest of the next line, which must begin with a word.
func (c *child) line(word string) string {
	c.t.Helper()
	select {
	case line := <-c.lines:
		rest, ok := strings.CutPrefix(line, word+" ")
		if !ok {
			c.t.Fatalf("the worker says %q; want %q", line, word)
		}
		return rest
	case <-time.After(limit):
		c.t.Fatalf("the worker does not say %q", word)
		return ""
	}
}

// stop stops the process until proceed, and returns once it has stopped.
func (c *child) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	for end := time.Now().Add(limit); ; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			return // not Linux: SIGSTOP takes effect soon enough
		}
		if _, state, ok := strings.Cut(string(stat), ") "); ok && state[0] == 'T' {
			return
		}
		if time.Now().After(end) {
			c.t.Fatal("the worker does not stop")
		}
	}
}

func (c *child) proceed() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}
