package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// freeAddr returns an address that no program listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestHealthIsThatOfTheWorker(t *testing.T) {
	t.Parallel()
	redis, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: redis.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[string]{Unlocked: true, Run: func(context.Context, string) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	stop, err := serveHealth(t.Context(), addr, w, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ask := func(path string) (int, string) {
		var out, errOut bytes.Buffer
		status := command(t.Context(), []string{"-health", "http://" + addr + path}, &out, &errOut)
		return status, out.String() + errOut.String()
	}
	if status, text := ask("/readyz"); status != exitWrong || !strings.Contains(text, "no server runs") {
		t.Errorf("before the start: %d, %s", status, text)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for status, text := ask("/readyz"); status != exitOK; status, text = ask("/readyz") {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not ready although it works: %s", text)
		}
	}
	if err := w.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if status, text := ask("/readyz"); status != exitWrong || !strings.Contains(text, "shutting down") {
		t.Errorf("after the shutdown: %d, %s", status, text)
	}
	if status, text := ask("/livez"); status != exitOK {
		t.Errorf("live: %d, %s", status, text)
	}
	if _, err := serveHealth(t.Context(), addr, w, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "-listen") {
		t.Errorf("a second listener at the address: %v", err)
	}
}

func TestHealthFailsWithoutAWorker(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	addr := freeAddr(t)
	if status := command(t.Context(), []string{"-health", "http://" + addr + "/readyz"}, &out, &errOut); status != exitWrong || !strings.Contains(errOut.String(), addr) {
		t.Errorf("%d, %s%s", status, &out, &errOut)
	}
}
