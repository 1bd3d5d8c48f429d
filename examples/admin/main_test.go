package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestBothPagesAreServedBesideEachOther(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"", "shop-a"} {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel()
			redisServer := redistest.Start(t)
			client, err := connect(redisServer.Addr(), namespace)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			tick(t, client)
			locker, err := locking.NewSingle(client, locking.SingleOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer locker.Close()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- serve(ctx, listener, redisServer.Addr(), namespace) }()

			err = locking.Do(t.Context(), locker, []string{"order:1042"}, locking.Options{Label: "the audit"}, func(context.Context, *locking.Lease) error {
				for path, want := range map[string]string{
					"/":                         `href="/asynqmon/"`,
					"/locks":                    `href="/asynqmon/"`,
					"/locks/key?key=order:1042": "the audit",
					"/asynqmon":                 "/asynqmon/static/js/",
					"/asynqmon/api/queues":      `"queue":"audits"`,
				} {
					if text := get(t, "http://"+listener.Addr().String()+path); !strings.Contains(text, want) {
						t.Errorf("%s has no %s:\n%s", path, want, text)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
			for _, name := range redisServer.Client(t).Keys(t.Context(), "*").Val() {
				if namespace != "" && !strings.HasPrefix(name, namespace+":") {
					t.Errorf("%s is not in the namespace", name)
				}
			}
		})
	}
}

// tick has a scheduler enqueue a task once.
func tick(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	enqueued := make(chan error, 10)
	scheduler := asynq.NewSchedulerFromRedisClient(client, &asynq.SchedulerOpts{
		LogLevel:        asynq.FatalLevel,
		PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) { enqueued <- err },
	})
	if _, err := scheduler.Register("@every 1s", asynq.NewTask("order:audit", nil), asynq.Queue("audits")); err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	defer scheduler.Shutdown()
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
}

// get returns the text of a page, which must be served.
func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	return string(text)
}
