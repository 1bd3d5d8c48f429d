package attach_test

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// Redis is away for longer than After. The worker that reports first afterwards finds the sign of the other one that old.
func TestAnOutageTakesNothingBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	r := rigOn(t, server)
	const tasks = 5
	for range tasks {
		_, err := r.tasks.Enqueue(asynq.NewTask(withoutKey, nil), asynq.MaxRetry(0))
		ok(t, err)
	}
	works := r.begins(server, tasks)
	var seen recoveries
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{Recovery: patient, Observer: seen.observe})
	r.serve(a.Client(), a.Config(), handlers(a, func(context.Context, *asynq.Task) error {
		t.Error("a task runs beside its run")
		return nil
	}))
	r.reports(2)
	server.Kill()
	<-time.After(outage)
	server.Restart(t)
	<-time.After(patient.After + 2*time.Second) // whoever did not report again would count as dead by then
	if n := seen.sum(); n != 0 {
		t.Errorf("%d tasks were taken back", n)
	}
	if n := r.client.LLen(t.Context(), "asynq:{default}:active").Val(); n != tasks {
		t.Errorf("%d tasks are active", n)
	}
	works.Signal(t, syscall.SIGKILL)
}

// Workers are replaced one by one under load, for longer than After.
func TestARolloutTakesNothingBack(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	server := redistest.Start(t)
	r := rigOn(t, server)
	var seen recoveries
	a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{Recovery: patient, Observer: seen.observe})
	r.serve(a.Client(), a.Config(), handlers(a, func(ctx context.Context, _ *asynq.Task) error {
		return r.client.Incr(ctx, "ran").Err()
	}))
	n, stop, produced := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(produced)
		for ; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if _, err := r.tasks.Enqueue(asynq.NewTask("test", []byte(strconv.Itoa(n%20))), asynq.TaskID("brief"+strconv.Itoa(n))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	rolled := 0
	for began := time.Now(); time.Since(began) < patient.After+5*time.Second; rolled++ {
		c := r.begins(server, 50)
		c.Tell(t, "stop")
		for c.Says(t) != "stopped" {
			continue
		}
	}
	close(stop)
	<-produced
	t.Logf("%d tasks, %d workers", n, rolled)
	for began := time.Now(); r.client.Get(t.Context(), "ran").Val() != strconv.Itoa(n); <-time.After(5 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("%s of %d tasks have run", r.client.Get(t.Context(), "ran").Val(), n)
		}
	}
	if all := seen.counted(); len(all) != 0 {
		t.Errorf("%d tasks were taken back", len(all))
	}
}
