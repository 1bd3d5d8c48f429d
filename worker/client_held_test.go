package worker

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestAClientKnowsOfAHeldKey(t *testing.T) {
	t.Parallel()
	conn := redistest.Start(t).Client(t)
	locker, err := locking.NewSingle(conn, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	c, err := NewClientWith(Redis{Client: conn}, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{
		"audit": middleware.PayloadKey(func(o order) string { return middleware.Key("order", o.ID) }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locker.Acquire(t.Context(), []string{"order:42"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	_, err = c.Enqueue(t.Context(), "audit", order{"42"}, attach.WhenHeld(middleware.FailFast{}))
	if conflict, ok := errors.AsType[*middleware.ConflictError](err); !ok || conflict.Key != "order:42" {
		t.Errorf("FailFast gives %v", err)
	}
	parked, err := c.Enqueue(t.Context(), "audit", order{"42"}, attach.WhenHeld(middleware.Requeue{}))
	if err != nil || parked.State != asynq.TaskStateRetry {
		t.Errorf("Requeue gives %+v, %v", parked, err)
	}
	info, err := c.Enqueue(t.Context(), "audit", order{"43"})
	if err != nil || conn.HGet(t.Context(), "asynq:{default}:t:"+info.ID, "railtoken:keys").Val() != "order:43" {
		t.Errorf("without WhenHeld: %+v, %v", info, err)
	}
	if waiters, err := c.Queue().Inspector().Waiters(t.Context(), "order:42", 9); err != nil || len(waiters) != 1 || waiters[0].Task.ID != parked.ID {
		t.Errorf("waiting are %+v, %v", waiters, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the caller's client: %v", err)
	}
}
