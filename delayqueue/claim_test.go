package delayqueue_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// When the reply to the enqueue of a copy is lost, the client sends it again, and by then the copy may have run and be gone.
func TestACopyThatHasRunIsNotRunAgainWhenItsEnqueueIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	copied := r.move(r.delayed("a"), nil, 0)
	headers := r.headers(copied)
	hash := "asynq:{" + copied.Queue + "}:t:" + copied.ID
	message := r.client.HGet(t.Context(), hash, "msg").Val()
	for range 2 {
		if !r.claim(copied, headers) {
			t.Fatal("the copy may not run, or not again for a retry")
		}
	}
	if err := r.inspect.DeleteTask(copied.Queue, copied.ID); err != nil { // as asynq does with a task that is done
		t.Fatal(err)
	}
	if r.claim(copied, headers) {
		t.Error("a run of the copy that is gone may go on")
	}
	if n := r.client.Exists(t.Context(), hash).Val(); n != 0 {
		t.Error("a claim has put a task back that is gone")
	}
	r.client.HSet(t.Context(), hash, "msg", message, "state", "scheduled")
	r.client.ZAdd(t.Context(), "asynq:{"+copied.Queue+"}:scheduled", redis.Z{Score: float64(time.Now().Unix()), Member: copied.ID})
	if r.claim(copied, headers) {
		t.Error("the copy may run once more")
	}
	task := asynq.NewTaskWithHeaders("test", nil, headers)
	if _, err := r.queue.Move(t.Context(), copied, task, "siding", time.Minute, 0); err == nil {
		t.Error("the copy may be moved on, and run from there")
	}
}

// The first copy exists beside the second one when its worker crashes after the move and before it deletes it.
func TestOfACopyThatHasRunAndItsOwnCopyOneRuns(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"the later one asks first": {1, 0}, "the earlier one asks first": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			first := r.move(r.delayed("a"), nil, 3)
			if !r.claim(first, r.headers(first)) { // it runs, and fails
				t.Fatal("the first copy may not run")
			}
			task := asynq.NewTaskWithHeaders("test", nil, r.headers(first))
			second, err := r.queue.Move(t.Context(), first, task, "siding", time.Minute, 2)
			if err != nil {
				t.Fatal(err)
			}
			copies := []delayqueue.Task{first, second}
			for range 2 {
				if one := copies[order[0]]; !r.claim(one, r.headers(one)) {
					t.Errorf("%s may not run", one)
				}
				if other := copies[order[1]]; r.claim(other, r.headers(other)) {
					t.Errorf("%s may run as well", other)
				}
			}
		})
	}
}
