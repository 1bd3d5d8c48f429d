package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// A worker and a client on each topology lock, park and wake, and all that they write is in the namespace.
func TestAWorkerInANamespace(t *testing.T) {
	t.Parallel()
	for topology, start := range map[string]func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client){
		"standalone": func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client) {
			s := redistest.Start(t)
			return worker.Redis{Addr: s.Addr()}, worker.Redis{}, []*redis.Client{s.Client(t)}
		},
		"client given": func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client) {
			s := redistest.Start(t)
			return worker.Redis{Client: s.Client(t)}, worker.Redis{}, []*redis.Client{s.Client(t)}
		},
		"locks elsewhere": func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client) {
			s, l := redistest.Start(t), redistest.Start(t)
			return worker.Redis{Addr: s.Addr()}, worker.Redis{Addr: l.Addr()}, []*redis.Client{s.Client(t), l.Client(t)}
		},
		"redlock": func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client) {
			s := redistest.Start(t)
			raw = append(raw, s.Client(t))
			for range 3 {
				l := redistest.Start(t)
				locks.Nodes, raw = append(locks.Nodes, l.Addr()), append(raw, l.Client(t))
			}
			return worker.Redis{Addr: s.Addr()}, locks, raw
		},
		"cluster": func(t *testing.T) (at, locks worker.Redis, raw []*redis.Client) {
			c := redistest.StartCluster(t, 3)
			for _, addr := range c.Addrs() {
				one := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { _ = one.Close() })
				raw = append(raw, one)
			}
			return worker.Redis{Cluster: c.Addrs()}, worker.Redis{}, raw
		},
	} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			at, locks, raw := start(t)
			at.Namespace, at.NamespaceTasks = "shop-a", true
			w, err := worker.New(worker.Config{Redis: at, LockRedis: locks, LockGuard: 2, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			began, goOn := make(chan string, 9), make(chan struct{})
			if err := w.HandleTask("test", asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
				began <- string(task.Payload())
				<-goOn
				return nil
			}), middleware.FixedKey("order:1")); err != nil {
				t.Fatal(err)
			}
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			client, err := worker.NewClient(at)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := client.EnqueueRaw(t.Context(), "test", []byte("asynq:x"), nil); err != nil {
					t.Fatal(err)
				}
			}
			redistest.Receive(t, began, 30*time.Second)
			in := at.Connect()
			for end := time.Now().Add(30 * time.Second); in.ZCard(t.Context(), "railtoken:parked").Val() == 0; {
				if time.Now().After(end) {
					t.Fatal("the second task does not wait")
				}
				<-time.After(10 * time.Millisecond)
			}
			woken := time.Now()
			goOn <- struct{}{}
			if got := redistest.Receive(t, began, 30*time.Second); got != "asynq:x" || time.Since(woken) > 5*time.Second {
				t.Errorf("the second has %q after %v", got, time.Since(woken))
			}
			close(goOn)
			if err := errors.Join(w.Shutdown(), client.Close(), in.Close()); err != nil {
				t.Error(err)
			}
			n := 0
			for _, server := range raw {
				for _, name := range server.Keys(t.Context(), "*").Val() {
					n++
					if !strings.HasPrefix(name, "shop-a:") {
						t.Errorf("there is a key %q", name)
					}
				}
			}
			if n < 5 {
				t.Errorf("there are %d keys", n)
			}
		})
	}
}
