package items_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"
)

func TestAShutdownHandsTheTaskToAnotherServer(t *testing.T) {
	t.Parallel()
	var ran counts
	begun := make(chan struct{}, 100)
	goOn := make(chan struct{})
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		begun <- struct{}{}
		<-goOn
		return nil
	})
	h.Parallel = 2
	s := newSite(t, h)
	run := ordersFrom(20)
	task := s.enqueue("run", run)
	<-begun
	<-begun
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = s.worker.Shutdown()
	}()
	s.until("the shutdown has begun", func() bool { return s.log.has("worker shuts down") })
	close(goOn)
	<-down
	r := s.report(task)
	if r.Done < 2 || r.Done > 4 {
		t.Errorf("%d items are done after the shutdown", r.Done)
	}
	s.startWorker(h)
	info := s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
	if info.Retried != 0 {
		t.Errorf("the shutdown has used up %d retries", info.Retried)
	}
}

func TestAShutdownGivesUpNoRefusedItem(t *testing.T) {
	t.Parallel()
	var ran counts
	begun, goOn := make(chan struct{}, 3), make(chan struct{})
	h := handler(func(_ context.Context, order string) error {
		ran.add(order)
		if order == "1" {
			begun <- struct{}{}
			<-goOn
		}
		return nil
	})
	h.Parallel = 1
	s := newSite(t, h)
	release := s.hold(orderKey("1"), orderKey("2"))
	run := ordersFrom(3)
	task := s.enqueue("run", run)
	s.until("it waits", func() bool { return s.report(task).Refused == 2 && s.info(task).State == asynq.TaskStateRetry })
	release()
	<-begun // the other one is next
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = s.worker.Shutdown()
	}()
	s.until("the shutdown has begun", func() bool { return s.log.has("worker shuts down") })
	close(goOn)
	<-down
	s.worker = s.startWorker(h)
	s.await(task, asynq.TaskStateCompleted)
	ran.wantAll(t, run, 1, nil)
}
