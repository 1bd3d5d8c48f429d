package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// A handler enqueues the next step of its order, which waits without a run until the handler has returned.
func TestAHandlersNextStepWaitsForItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{})
	producer := a.Producer(map[string]middleware.KeyFunc{"test": byPayload})
	states, ran := make(chan asynq.TaskState, 1), make(chan string, 2)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		if id == "next" {
			return nil
		}
		info, err := producer.EnqueueContext(ctx, asynq.NewTask("test", task.Payload()), attach.WhenHeld(middleware.Requeue{}), asynq.TaskID("next"))
		if err == nil {
			states <- info.State
		}
		return err
	})))
	r.enqueue("order:1", asynq.TaskID("first"), asynq.MaxRetry(0))
	if first, state, next := receive(t, ran), receive(t, states), receive(t, ran); first != "first" || state != asynq.TaskStateRetry || next != "next" {
		t.Errorf("%s ran, and %s, which was %v", first, next, state)
	}
}

func TestAProducerHasTheLimitsOfItsServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	long := strings.Repeat("k", 2000)
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{MaxKeySize: 2000, MaxKeys: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, keys := range map[string][]string{"a long key": {long}, "many keys": {"a", "b", "c"}} {
		_, err = p.EnqueueContext(t.Context(), asynq.NewTask("test", nil), attach.Keys(keys...))
		if wrong := name == "many keys"; (err != nil) != wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAProducerKeepsTheOrderOfItsTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 4}, attach.Options{Strategy: middleware.Requeue{Order: middleware.FIFO}})
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, id := range []string{"c", "a", "b"} {
		if _, err := p.EnqueueInOrder(t.Context(), "order:1", asynq.NewTask("test", []byte("order:1")), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan string, 3)
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})))
	if got := receive(t, ran) + receive(t, ran) + receive(t, ran); got != "cab" {
		t.Errorf("they ran in the order %s", got)
	}
}

func TestAProducerNeedsAClient(t *testing.T) {
	t.Parallel()
	if _, err := attach.NewProducer(nil, attach.ProducerOptions{}); err == nil {
		t.Error("without a client it is made")
	}
}

func TestEnqueueInOrderRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := attach.NewProducer(r.client, attach.ProducerOptions{MaxKeySize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	task := asynq.NewTask("test", nil)
	for name, tt := range map[string]struct {
		key  string
		task *asynq.Task
		opt  asynq.Option
		want string
	}{
		"no task":   {"k", nil, asynq.MaxRetry(1), "task is nil"},
		"no key":    {"", task, asynq.MaxRetry(1), "key is empty"},
		"long key":  {"order:1042", task, asynq.MaxRetry(1), "MaxKeySize"},
		"other key": {"k", task, attach.Keys("other"), "leave out Keys"},
		"when held": {"k", task, attach.WhenHeld(middleware.FailFast{}), "leave out Keys and WhenHeld"},
	} {
		info, err := p.EnqueueInOrder(t.Context(), tt.key, tt.task, tt.opt)
		if err == nil || info != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, %v; want an error with %q", name, info, err, tt.want)
		}
		if keyed := errors.Is(err, middleware.ErrKey); keyed != strings.HasSuffix(name, " key") && name != "other key" {
			t.Errorf("%s: is it an ErrKey: %v", name, keyed)
		}
	}
	if left := r.client.Keys(t.Context(), "*").Val(); len(left) > 0 {
		t.Errorf("Redis has %v afterwards", left)
	}
}
