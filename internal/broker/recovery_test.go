package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// listLeaseExpired is the SHA-1 of asynq's script that finds the tasks of dead workers.
const listLeaseExpired = "16988a462595f6ee317be300951533b004f27f5c"

// recoverer looks for the tasks of dead workers as asynq does. Redis has one, and fetches fail with an error.
type recoverer struct {
	*Conn
	down error
}

func newRecoverer() *recoverer {
	r := &recoverer{}
	r.Conn = New(r, Options{Queues: numbered(2)})
	return r
}

func (r *recoverer) EvalSha(ctx context.Context, sum string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha", sum)
	switch {
	case r.down != nil:
		cmd.SetErr(r.down)
	case sum == listLeaseExpired:
		cmd.SetVal([]any{"a task"})
	default:
		cmd.SetErr(redis.Nil)
	}
	return cmd
}

func (r *recoverer) fetch(err error) {
	r.down = err
	r.Conn.EvalSha(context.Background(), dequeue, []string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease"})
	r.down = nil
}

// finds reports what a look at a queue finds.
func (r *recoverer) finds(queue string) bool {
	found, _ := r.Conn.EvalSha(context.Background(), listLeaseExpired, []string{"asynq:{" + queue + "}:lease"}).Slice()
	return len(found) > 0
}

func TestAfterAnOutageOneLookFindsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, refused := newRecoverer(), errors.New("connection refused")
		if !r.finds("q") || !r.finds("other") {
			t.Error("nothing is found before any fetch has failed")
		}
		for range 30 { // longer than the rest of any lease
			time.Sleep(time.Second)
			r.fetch(refused)
		}
		time.Sleep(20 * time.Second)
		if r.finds("q") || r.finds("other") {
			t.Error("tasks are found soon after an outage")
		}
		r.fetch(refused)
		if !r.finds("q") || !r.finds("other") {
			t.Error("two looks in a row were answered with nothing")
		}
		time.Sleep(time.Minute)
		if !r.finds("q") {
			t.Error("nothing is found long after the outage")
		}
	})
}

func TestAnOutageThatEndsNoLeaseHidesNothing(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"short":         errors.New("connection refused"),
		"a moving slot": errMoving,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRecoverer()
			for range 10 {
				r.fetch(nil)
				for range 9 { // with the pauses twice as long
					time.Sleep(time.Second)
					r.fetch(err)
				}
				if !r.finds("q") {
					t.Errorf("%s: the tasks of a dead worker are not found", name)
				}
			}
		})
	}
}

// The worker of a task has died, and the network of the only other one fails for 300 ms each 20 s.
func TestADeadWorkersTaskRunsBesideAFailingNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		dead := redistest.Patient(t, m)
		task := asynqtest.Enqueue(t, m, asynq.NewTask("test", nil))
		keys := []string{"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active", "asynq:{default}:lease"}
		if err := New(dead, Options{Queues: numbered(1), Tasks: &witness{}}).EvalSha(t.Context(), dequeue, keys).Err(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		alive := redistest.Patient(t, m)
		var failed atomic.Int64
		alive.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if (time.Since(began)+7*time.Second)%(20*time.Second) < 300*time.Millisecond { // asynq looks each 60 s
				failed.Add(1)
				return redistest.Fail(cmd, errors.New("connection refused"))
			}
			return next(ctx, cmd)
		}))
		ran := make(chan time.Duration, 1)
		s := bareServer(t, New(alive, Options{
			Queues: numbered(1), Interval: 50 * time.Millisecond, Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }},
		}), func(ctx context.Context, _ *asynq.Task) error {
			if id, _ := asynq.GetTaskID(ctx); id == task.ID {
				ran <- time.Since(began)
			}
			return nil
		}, func(cfg *asynq.Config) {
			cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
		})
		select {
		case took := <-ran:
			t.Logf("the task ran after %v", took)
			if took > 130*time.Second || failed.Load() == 0 {
				t.Errorf("the task ran after %v, and %d calls have failed", took, failed.Load())
			}
		case <-time.After(5 * time.Minute):
			t.Error("the task did not run within 5 minutes")
		}
		s.Shutdown()
	})
}
