package noop_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/worker"
)

const slots = 4

func TestACrewDoesSoManyTasksAndRests(t *testing.T) {
	t.Parallel()
	ctx, s, job := setUp(t, 100)
	crew, err := job.Start(ctx, usage.Meter{Servers: []*redis.Client{s.Probe()}}, s, 20)
	if err != nil {
		t.Fatal(err)
	}
	cost, err := crew.Do(ctx, 50)
	if err != nil {
		t.Fatal(err)
	}
	if cost.Units != 50 || cost.PerUnit() < 3.5 || cost.PerUnit() > 15 || cost.Client <= 0 || cost.ServerTime() <= 0 {
		t.Errorf("it cost %+v", cost)
	}
	// 70 have passed, and those in the slots wait: no more are done than were asked for.
	pending, err := s.Probe().LLen(ctx, "asynq:{noop}:pending").Result()
	if err != nil || pending < 100-70-slots {
		t.Errorf("%d tasks are left, %v", pending, err)
	}
	if err := crew.Stop(); err != nil {
		t.Error(err)
	}
}

func TestACrewSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	ctx, s, job := setUp(t, 10)
	crew, err := job.Start(ctx, usage.Meter{Servers: []*redis.Client{s.Probe()}}, nil, 5)
	if err != nil {
		t.Fatal(err)
	}
	few, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := crew.Do(few, 50); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("50 tasks of which 5 are left: %v", err)
	}
	if err := crew.Stop(); err != nil {
		t.Error(err)
	}
}

func setUp(t *testing.T, tasks int) (context.Context, *server.Server, noop.Job) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s, err := server.Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	job := noop.Job{
		Redis: worker.Redis{Addr: s.Addr()}, Queues: []string{"noop"}, Keys: []string{"a", "b", "c", "d", "e", "f", "g", "h"},
		Tasks: tasks, Workers: 1, Slots: slots,
	}
	if err := job.Enqueue(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, s, job
}
