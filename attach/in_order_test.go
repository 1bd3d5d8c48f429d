package attach_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// ordered is a server that has learned to fetch tasks that keep an order, and one of them that holds a key until end is
// closed.
type ordered struct {
	*rig
	producer *attach.Producer
	began    chan string // IDs of the tasks whose handlers have begun
	parked   chan string
	end      chan struct{}
	sent     commands
}

func newOrdered(t *testing.T, order middleware.Order) *ordered {
	t.Helper()
	m, tasks := redistest.Virtual(t)
	r := &rig{t, tasks, asynq.NewClientFromRedisClient(tasks), asynq.NewInspectorFromRedisClient(tasks)}
	o := &ordered{rig: r, began: make(chan string, 1000), parked: make(chan string, 1000), end: make(chan struct{})}
	o.producer, o.sent.counts = o.produce(), map[string]int{}
	client := redistest.Patient(t, m)
	client.AddHook(&o.sent)
	a := attached(t, client, asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}, attach.Options{
		Strategy: middleware.Requeue{Order: order},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				o.parked <- e.Task.ID
			}
		},
	})
	o.serve(a.Client(), a.Config(), a.Lock(byPayloads)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		o.began <- id
		if id == "holder" {
			<-o.end
		}
		return nil
	})))
	for i := range 8 {
		o.enqueueInOrder(fmt.Sprint("warm", i), fmt.Sprint("warm", i))
		receive(t, o.began)
	}
	o.wantNoLocks()
	o.sent.forget()
	return o
}

func (o *ordered) enqueueInOrder(key, id string, opts ...asynq.Option) {
	o.Helper()
	_, err := o.producer.EnqueueInOrder(o.Context(), key, asynq.NewTask("test", []byte(key)), append(opts, asynq.TaskID(id))...)
	if err != nil {
		o.Fatal(err)
	}
}

// eachOrder runs a test for both orders, in virtual time: a server on a busy machine would look after wakes that are only late.
func eachOrder(t *testing.T, test func(t *testing.T, o *ordered)) {
	t.Helper()
	for _, order := range []middleware.Order{middleware.FIFO, middleware.StrictFIFO} {
		t.Run(strings.ReplaceAll(order.String(), " ", "-"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newOrdered(t, order)) })
		})
	}
}

// wantNoCalls checks that the server has sent nothing for its tasks but fetches and acknowledgements.
func (o *ordered) wantNoCalls(tasks int) {
	o.Helper()
	sent := o.sent.forget()
	o.Logf("%v for %d tasks", sent, tasks)
	if sent["lock"]+sent["park"]+sent["wake"]+sent["place"] > 0 || sent["acknowledge"] > tasks+5 {
		o.Errorf("the server has sent %v for %d tasks", sent, tasks)
	}
}

func TestATaskInOrderCostsNoCallForItsPlace(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, o *ordered) {
		const tasks = 200
		for i := range tasks {
			o.enqueueInOrder(fmt.Sprint("k", i), fmt.Sprint("t", i))
		}
		for range tasks {
			receive(t, o.began)
		}
		o.wantNoLocks()
		o.wantNoCalls(tasks)
		if left := o.client.Keys(t.Context(), "railtoken:sequence:*").Val(); len(left) > 0 {
			t.Errorf("left are the sequences %v", left)
		}
	})
}

func TestTasksOfAHeldKeyWaitAndRunInOrder(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, o *ordered) {
		const tasks = 200
		o.enqueueInOrder("hot", "holder")
		receive(t, o.began)
		o.sent.forget()
		for i := range tasks {
			o.enqueueInOrder("hot", fmt.Sprintf("t%03d", i))
		}
		for range tasks {
			receive(t, o.parked)
		}
		close(o.end)
		for i := range tasks {
			if id, want := receive(t, o.began), fmt.Sprintf("t%03d", i); id != want {
				t.Fatalf("%s runs, want %s", id, want)
			}
		}
		o.wantNoLocks()
		o.wantNoCalls(2 * tasks)
	})
}
