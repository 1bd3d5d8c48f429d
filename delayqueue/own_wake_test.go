package delayqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
)

func TestAWakeOfAConflictOfOnesOwnIsForOneTask(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	parked, ran := map[string]bool{}, make(chan string, 3)
	linetest.Serve(t, r.Engine, asynq.Config{Concurrency: 1}, func(ctx context.Context, id string) error {
		if !parked[id] {
			parked[id] = true
			return (*delayqueue.Queue)(r.Engine).Park(ctx, "warehouse", delayqueue.ParkOptions{RetryAfter: time.Hour})
		}
		ran <- id
		return nil
	})
	for _, id := range []string{"a", "b", "c"} {
		if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
		r.Become(line.Task{Queue: "default", ID: id}, asynq.TaskStateRetry)
	}
	r.Wake("warehouse")
	if id := <-ran; id != "a" {
		t.Errorf("%s ran", id)
	}
	r.Until("a is done", func() bool { return r.Client.Exists(t.Context(), "asynq:{default}:t:a").Val() == 0 })
	_ = r.Engine.Close() // it waits for what goes on in the background
	if got := r.Waiting("warehouse"); len(got) != 2 {
		t.Errorf("waiting are %v, want b and c", got)
	}
}
