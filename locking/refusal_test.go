package locking_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// answering is a hook that answers every command itself while fail is set, and counts them.
type answering struct {
	fail atomic.Pointer[error]
	sent atomic.Int64
}

func (a *answering) with(err error) { a.fail.Store(&err) }

func (a *answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a.sent.Add(1)
		if fail := a.fail.Load(); fail != nil {
			cmd.SetErr(*fail)
			return *fail
		}
		return next(ctx, cmd)
	}
}

func (a *answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		fail := a.fail.Load()
		if fail == nil {
			a.sent.Add(int64(len(cmds)))
			return next(ctx, cmds)
		}
		a.sent.Add(1)
		for _, cmd := range cmds {
			cmd.SetErr(*fail)
		}
		return *fail
	}
}

// reply is an error reply of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// An attempt that Redis refuses before it has executed anything leaves nothing behind, so nothing is undone.
func TestACertainRefusalIsQuickAndUndoesNothing(t *testing.T) {
	for name, err := range map[string]error{
		"loading":     reply("LOADING Redis is loading the dataset in memory"),
		"memory":      reply("OOM command not allowed when used memory > 'maxmemory'."),
		"replica":     reply("READONLY You can't write against a read only replica."),
		"no snapshot": reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
		"no login":    reply("NOAUTH Authentication required."),
		"forbidden":   reply("NOPERM User x has no permissions to run the 'evalsha' command"),
		"moved":       reply("MOVED 14374 127.0.0.1:7001"),
		"cluster":     reply("CLUSTERDOWN Hash slot not served"),
		"busy":        reply("BUSY Redis is busy running a script."),
		"dial":        &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"breaker":     errors.New("the circuit breaker is open"),
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				_, client := redistest.Virtual(t)
				hook := &answering{}
				client.AddHook(hook)
				l, failed := locking.NewSingle(client, locking.SingleOptions{})
				if failed != nil {
					t.Fatal(failed)
				}
				defer l.Close()
				hook.with(err)
				began := time.Now()
				_, got := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
				if took := time.Since(began); took > 300*time.Millisecond || !errors.Is(got, locking.ErrUnavailable) {
					t.Errorf("%v after %v; want ErrUnavailable within 300ms", got, took)
				}
				sent := hook.sent.Load()
				time.Sleep(11 * time.Minute)
				if n := hook.sent.Load() - sent; sent > 5 || n != 0 {
					t.Errorf("%d commands, and %d later; want at most 5, a look at its memory and four attempts, and none later",
						sent, n)
				}
			})
		})
	}
}

// 1 000 releases wait while the server, or a hook that counts failures, refuses everything.
func TestABacklogOfReleasesBarelyPressesAServer(t *testing.T) {
	virtually(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		hook := &answering{}
		client.AddHook(hook)
		l, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		leases := make([]*locking.Lease, 1000)
		for i := range leases {
			leases[i] = acquire(t, l, locking.Options{}, string(rune('a'+i)))
		}
		hook.with(errors.New("the circuit breaker is open"))
		for _, lease := range leases {
			go func() { _ = lease.Release(t.Context()) }()
		}
		time.Sleep(time.Second)
		sent := hook.sent.Load()
		time.Sleep(10 * time.Second)
		if n := hook.sent.Load() - sent; n > 50 {
			t.Errorf("%d calls in 10s; want 5 a second at most", n)
		}
		hook.fail.Store(nil)
		time.Sleep(time.Second)
		for i := range leases {
			release(t, acquire(t, l, locking.Options{}, string(rune('a'+i))))
		}
	})
}
