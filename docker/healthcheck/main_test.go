package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

func TestHealthyWhileTheWorkerIsAtWork(t *testing.T) {
	t.Parallel()
	server, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	at := worker.Redis{Addr: server.Addr()}
	if err := active(t.Context(), at, host); err == nil {
		t.Error("healthy before a worker was started")
	}

	w, err := worker.New(worker.Config{Redis: at})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[string]{
		Unlocked: true, Run: func(context.Context, string) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond) // the worker tells of itself in the background
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for active(t.Context(), at, host) != nil {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not healthy although a worker is at work")
		}
	}
	if err := active(t.Context(), at, "another-host"); err == nil || !strings.Contains(err.Error(), "another-host") {
		t.Errorf("the worker of another host counts for this one: %v", err)
	}

	if err := w.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if err := active(t.Context(), at, host); err == nil {
		t.Error("healthy after the shutdown")
	}
}

func TestUnhealthyWithoutRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]worker.Redis{
		"standalone": {Addr: gone, Password: "hunter2"},
		"sentinels":  {Master: "m", Sentinels: []string{gone}, Password: "hunter2", SentinelPassword: "hunter2"},
		"cluster":    {Cluster: []string{gone}, Password: "hunter2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			err := active(t.Context(), at, "host")
			if took := time.Since(began); took > 2*timeout {
				t.Errorf("it took %v to find out; the time to connect is %v", took, timeout)
			}
			if err == nil || !strings.Contains(err.Error(), gone) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("without a Redis it is %v", err)
			}
		})
	}
}

func TestEnvironmentOfTheWorkerIsRead(t *testing.T) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "RAILTOKEN_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	if err := check(t.Context()); err == nil || !strings.Contains(err.Error(), "RAILTOKEN_REDIS_ADDR") {
		t.Errorf("an empty environment gives %v", err)
	}
	server, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv("RAILTOKEN_REDIS_ADDR", server.Addr())
	if err := check(t.Context()); err == nil || !strings.Contains(err.Error(), "no worker on host") {
		t.Errorf("a Redis without workers gives %v", err)
	}
}
