package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// A queue that tasks were moved to, and that no worker serves any more, takes the wakes of a key: they go on to tasks
// that can run.
func TestAWakeIntoAnUnservedQueueGoesToTheNextTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		var log lines
		lease := r.hold("order:1")
		for i := range 2 { // as a worker has left them that served this queue
			info, err := r.tasks.Enqueue(asynq.NewTask("test", []byte(`{"key":"order:1"}`)), asynq.Queue("old"), asynq.ProcessIn(time.Hour))
			if err != nil {
				r.Fatal(err)
			}
			task := delayqueue.Task{Queue: "old", ID: info.ID}
			r.fetch(task)
			place, err := (*line.Engine)(r.queue).Park(context.Background(), line.Task(task), "order:1", line.ParkOptions{RetryAfter: time.Hour})
			if err != nil || place.Ahead != i {
				r.Fatal(place, err)
			}
		}
		ran := make(chan struct{}, 1)
		opts := r.options(parkAlways())
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
			ran <- struct{}{}
			return nil
		})
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		r.settled(task, asynq.TaskStateRetry)
		r.giveBack(lease)
		released := time.Now()
		receive(r.T, ran)
		if took := time.Since(released); took > 20*time.Second {
			r.Errorf("the task ran after %v, want within 20s, and not by its timer", took)
		}
		if n := log.count("no server works on"); n < 1 || n > 10 {
			r.Errorf("the log tells %d times of the unserved queue, want a few times", n)
		}
	})
}
