package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestBothPagesAreServedBesideEachOther(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	client := redisServer.Client(t)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("order:audit", nil), asynq.Queue("audits")); err != nil {
		t.Fatal(err)
	}
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
	go func() { served <- serve(ctx, listener, redisServer.Addr()) }()

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
