package line_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// As asynq's recoverer leaves them, so that asynq's own tools and counts tell the truth.
func TestATaskOfADeadWorkerIsBroughtBack(t *testing.T) {
	t.Parallel()
	const never = -time.Hour
	onEach(t, func(t *testing.T, r *rig) {
		if back, err := r.Engine.BringBack(t.Context(), r.task("gone"), true); err != nil || back {
			t.Errorf("a task that is gone is brought back: %v, %v", back, err)
		}
		for name, tt := range map[string]struct {
			ended   time.Duration // since the lease has ended
			begun   bool
			retries int
			back    bool
			state   asynq.TaskState
			retried int
			failed  int
		}{
			"alive":        {-20 * time.Second, true, 3, false, asynq.TaskStateActive, 0, 0},
			"not for long": {0, true, 3, false, asynq.TaskStateActive, 0, 0},
			"begun":        {10 * time.Second, true, 3, true, asynq.TaskStatePending, 1, 1},
			"for long":     {15 * time.Second, true, 3, true, asynq.TaskStatePending, 1, 1},
			"too late":     {28 * time.Second, true, 3, false, asynq.TaskStateActive, 0, 0},
			"not begun":    {10 * time.Second, false, 0, true, asynq.TaskStatePending, 0, 0},
			"no lease":     {never, false, 0, true, asynq.TaskStatePending, 0, 0},
			"at its last":  {10 * time.Second, true, 0, true, asynq.TaskStateArchived, 0, 1},
		} {
			task := r.task(name)
			task.Queue = r.name + "-" + name
			if _, err := r.Tasks.Enqueue(asynq.NewTask("test", []byte("payload")), asynq.Queue(task.Queue),
				asynq.TaskID(name), asynq.MaxRetry(tt.retries)); err != nil {
				t.Fatal(err)
			}
			prefix := "asynq:{" + task.Queue + "}:"
			r.Client.RPopLPush(t.Context(), prefix+"pending", prefix+"active")
			if tt.ended != never {
				r.Client.ZAdd(t.Context(), prefix+"lease", redis.Z{
					Score:  float64(time.Now().Add(-tt.ended).Unix()),
					Member: name,
				})
			}
			r.set(task, "state", "active")
			for i, want := range []bool{tt.back, false} {
				if back, err := r.Engine.BringBack(t.Context(), task, tt.begun); err != nil || back != want {
					t.Errorf("%s, call %d: %v, %v; want %v", name, i+1, back, err, want)
				}
			}
			info, err := r.Inspect.GetTaskInfo(task.Queue, name)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if tt.failed > 0 {
				text = asynq.ErrLeaseExpired.Error()
			}
			if info.State != tt.state || info.Retried != tt.retried || info.MaxRetry != tt.retries ||
				info.LastErr != text || string(info.Payload) != "payload" {
				t.Errorf("%s: %+v", name, info)
			}
			queue, err := r.Inspect.GetQueueInfo(task.Queue)
			if err != nil || queue.Size != 1 || queue.Failed != tt.failed || queue.FailedTotal != tt.failed ||
				queue.ProcessedTotal != tt.failed {
				t.Errorf("%s: %+v, %v", name, queue, err)
			}
			if left := r.Client.ZCard(t.Context(), prefix+"lease").Val(); (left == 0) != tt.back {
				t.Errorf("%s: %d leases are left", name, left)
			}
		}
	})
}
