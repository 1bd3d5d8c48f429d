package attach_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// warnings is a Logger of asynq's that keeps its warnings.
type warnings struct {
	mu   sync.Mutex
	warn []string
}

func (l *warnings) Debug(...any) {}
func (l *warnings) Info(...any)  {}
func (l *warnings) Error(...any) {}
func (l *warnings) Fatal(...any) {}
func (l *warnings) Warn(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warn = append(l.warn, fmt.Sprint(args...))
}

// exhausted returns of how many tasks asynq has said that their retries are over.
func (l *warnings) exhausted() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.warn {
		if id, ok := strings.CutPrefix(line, "Retry exhausted for task id="); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestOnlyAFailedTaskIsLoggedAsExhausted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var log warnings
	parked, end := make(chan string, 100), make(chan struct{})
	a := r.attach(asynq.Config{Concurrency: 4, Logger: &log, LogLevel: asynq.WarnLevel}, attach.Options{
		Strategy: middleware.Requeue{},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				parked <- e.Task.ID
			}
		},
	})
	began := make(chan string, 100)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		began <- id
		switch id {
		case "holder":
			<-end
		case "failed":
			return errors.New("it fails")
		}
		return nil
	})))
	r.enqueue("k", asynq.TaskID("holder"))
	receive(t, began)
	const tasks = 20
	for range tasks {
		r.enqueue("k", asynq.MaxRetry(0))
	}
	for range tasks {
		receive(t, parked)
	}
	failed := r.enqueue("other", asynq.TaskID("failed"), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	r.settled(failed, asynq.TaskStateArchived)
	close(end)
	for range tasks + 1 {
		receive(t, began)
	}
	if ids := log.exhausted(); len(ids) != 1 || ids[0] != "failed" {
		t.Errorf("%d tasks are said to be exhausted: %q, want the failed one alone", len(ids), ids)
	}
}
