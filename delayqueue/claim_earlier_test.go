package delayqueue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// A worker of an earlier version left a tombstone and nothing else. It was told to end in a rolling upgrade, or the handler has failed, and
// the new version has the task now: refusing it would delete it.
func TestACopyThatAnEarlierVersionBeganGoesOn(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, moves := range map[string]bool{"it runs again": false, "it is moved on first": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, kind)
				from := r.delayed("a")
				copied, err := r.queue.Move(t.Context(), from, asynq.NewTask("test", nil), "siding"+r.name, time.Minute, 3)
				if err != nil {
					t.Fatal(err)
				}
				info, err := r.inspect.GetTaskInfo(copied.Queue, copied.ID)
				if err != nil {
					t.Fatal(err)
				}
				headers := info.Headers
				tombstone := "railtoken:moved:{" + headers["Railtoken-Move"] + "}"
				if err := r.client.Set(t.Context(), tombstone, headers["Railtoken-Copy"], time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				if moves {
					task := asynq.NewTaskWithHeaders("test", nil, headers)
					if copied, err = r.queue.Move(t.Context(), copied, task, "further"+r.name, time.Minute, 2); err != nil {
						t.Fatalf("the copy cannot be moved on: %v", err)
					}
					if info, err = r.inspect.GetTaskInfo(copied.Queue, copied.ID); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					if mine, err := r.queue.Claim(t.Context(), copied, info.Headers); err != nil || !mine {
						t.Errorf("the copy may not go on: %v, %v", mine, err)
					}
				}
				if mine, err := r.queue.Claim(t.Context(), from, nil); err != nil || mine {
					t.Errorf("the original may run as well: %v, %v", mine, err)
				}
			})
		}
	}
}
