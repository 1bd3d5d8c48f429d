package attach_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// A worker stands still before it has the keys, and its task is taken back meanwhile. The task gets a new payload then, and that
// runs. The old one must not run after it.
func TestARunThatBeginsAfterItWasTakenBackDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stands, goes, ran := make(chan struct{}, 1), make(chan struct{}), make(chan string, 3)
	server := func(keys middleware.KeyFunc) *asynq.Server {
		a := r.attach(asynq.Config{Concurrency: 1}, attach.Options{})
		return r.serve(a.Client(), a.Config(), a.Lock(keys)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			ran <- string(task.Payload())
			return nil
		})))
	}
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	put := func(price string) *asynq.TaskInfo {
		info, err := p.EnqueueContext(t.Context(), asynq.NewTask("price", []byte(price)), attach.Keys("article:1"), attach.Latest{})
		ok(t, err)
		return info
	}
	late := server(func(ctx context.Context, task *asynq.Task) ([]string, error) {
		stands <- struct{}{}
		<-goes
		return ofArticle(ctx, task)
	})
	first := put("old")
	receive(t, stands)
	late.Stop() // it fetches no other task
	task := line.Task{Queue: first.Queue, ID: first.ID}
	_, err = r.client.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
		pipe.LRem(t.Context(), "asynq:{default}:active", 0, first.ID)
		pipe.ZRem(t.Context(), "asynq:{default}:lease", first.ID)
		pipe.HSet(t.Context(), task.Hash(), "state", "pending", "pending_since", strconv.FormatInt(time.Now().UnixNano(), 10))
		pipe.LPush(t.Context(), "asynq:{default}:pending", first.ID)
		return nil
	})
	ok(t, err)
	if again := put("new"); again.ID != first.ID {
		t.Fatalf("a task that was taken back keeps its payload, and %v waits beside it", again.ID)
	}
	server(ofArticle)
	if got := receive(t, ran); got != "new" {
		t.Errorf("price %s runs", got)
	}
	r.until("it is done", func() bool { _, err := r.inspect.GetTaskInfo("default", first.ID); return err != nil })
	close(goes)
	late.Shutdown()
	if len(ran) > 0 {
		t.Errorf("price %s runs then", <-ran)
	}
}

// A handler passes the headers of its task on to one in another queue, whose record is elsewhere on a Cluster.
func TestACopiedHeaderOfAnotherQueueIsIgnored(t *testing.T) {
	onPrices(t, func(p *prices) {
		first, err := p.producer.EnqueueContext(p.Context(), asynq.NewTask("price", nil), attach.Latest{}, asynq.Queue("other"))
		ok(p.T, err)
		info, err := p.inspect.GetTaskInfo(first.Queue, first.ID)
		ok(p.T, err)
		_, err = p.producer.EnqueueContext(p.Context(), asynq.NewTaskWithHeaders("price", []byte("copy"), info.Headers))
		ok(p.T, err)
		p.run()
		p.runs("copy", nil)
	})
}

// asynq's recoverers end a run with the message that they have read, also when the task has got another payload meanwhile.
func TestAnOlderPayloadThatComesBackDoesNotRun(t *testing.T) {
	onPrices(t, func(p *prices) {
		old := p.put("old", attach.Latest{Quiet: time.Hour})
		task := line.Task{Queue: old.Queue, ID: old.ID}
		client := (*line.Engine)(p.attached.Queue()).Client()
		message := client.HGet(p.Context(), task.Hash(), "msg").Val()
		p.replaces(old, "new", attach.Latest{})
		p.run()
		if got := receive(p, p.began); got != "new" {
			p.Fatalf("price %s runs", got)
		}
		ok(p.T, p.inspect.PauseQueue(old.Queue)) // its retry does not run before it has the old message
		p.results <- errors.New("fails")
		p.until("it is retried", func() bool {
			info, err := p.inspect.GetTaskInfo(old.Queue, old.ID)
			return err == nil && info.State != asynq.TaskStateActive
		})
		ok(p.T, client.HSet(p.Context(), task.Hash(), "msg", message).Err())
		ok(p.T, p.inspect.UnpauseQueue(old.Queue))
		p.until("it is done", func() bool { _, err := p.inspect.GetTaskInfo(old.Queue, old.ID); return err != nil })
		if len(p.began) > 0 {
			p.Errorf("price %s runs", <-p.began)
		}
	})
}
