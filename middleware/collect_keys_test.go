package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/locking"
)

// serveKeys runs a server with a gate and a budget of its own for tasks whose payload is the list of their keys.
func (r *rig) serveKeys(slots int, handle func(*asynq.Task)) *asynq.Server {
	r.Helper()
	return r.serveKeysWith(r.locker, slots, handle)
}

func (r *rig) serveKeysWith(locker locking.Locker, slots int, handle func(*asynq.Task)) *asynq.Server {
	r.Helper()
	opts := r.options(nil)
	opts.Locker, opts.Observer = locking.NewGate(locker, locking.GateOptions{}), nil
	opts.Key = func(_ context.Context, task *asynq.Task) (keys []string, err error) {
		err = json.Unmarshal(task.Payload(), &keys)
		return keys, err
	}
	return r.serve(opts, asynq.Config{Concurrency: slots}, func(_ context.Context, task *asynq.Task) error {
		handle(task)
		return nil
	})
}

// enqueueKeys adds a task that locks these keys.
func (r *rig) enqueueKeys(kind string, keys ...string) delayqueue.Task {
	r.Helper()
	data, err := json.Marshal(keys)
	if err != nil {
		r.Fatal(err)
	}
	info, err := r.tasks.Enqueue(asynq.NewTask(kind, data))
	if err != nil {
		r.Error(err)
		return delayqueue.Task{}
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

func eightKeys() []string {
	keys := make([]string, 8)
	for i := range keys {
		keys[i] = fmt.Sprintf("stock:%d", i)
	}
	return keys
}

func TestATaskOfEightBusyKeysWaitsForThemOneAfterAnother(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		ran := make(chan time.Time, 1)
		r.serveKeys(16, func(task *asynq.Task) {
			if task.Type() == "wide" {
				ran <- time.Now()
			}
			time.Sleep(40 * time.Millisecond)
		})
		keys := eightKeys()
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() { // each key is busy for 40 of 50 ms
			defer close(ended)
			tick := time.NewTicker(50 * time.Millisecond / time.Duration(len(keys)))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-tick.C:
					r.enqueueKeys("narrow", keys[i%len(keys)])
				}
			}
		}()
		time.Sleep(time.Second) // virtual: until the stream flows
		began := time.Now()
		r.enqueueKeys("wide", keys...)
		took := receive(r.T, ran).Sub(began)
		close(stop)
		<-ended
		if most := 400 * time.Millisecond; took > most { // each of the keys is free after 40 ms at most
			r.Errorf("the task ran after %v, want %v at most", took, most)
		}
		r.Logf("the task ran after %v", took)
	})
}

func TestATaskOfEightKeysIsNotTheLastOfABacklog(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	r := newRig(t, redistest.Start(t).Client(t))
	const backlog, after = 100, 2000
	keys := eightKeys()
	for i := range backlog {
		r.enqueueKeys("narrow", keys[i%len(keys)])
	}
	r.enqueueKeys("wide", keys...)
	for i := range after {
		r.enqueueKeys("narrow", keys[i%len(keys)])
	}
	before := make(chan int, 1)
	done := make(chan struct{})
	var n atomic.Int64
	r.serveKeys(16, func(task *asynq.Task) {
		place := int(n.Add(1))
		if task.Type() == "wide" {
			before <- place
		}
		time.Sleep(5 * time.Millisecond)
		if place == 1+backlog+after {
			close(done)
		}
	})
	place := receive(r.T, before)
	if late := place - backlog - 1; late > 400 { // without collecting mostly 400 to 1800
		r.Errorf("the task of eight keys ran as number %d, %d places late", place, late)
	} else {
		r.Logf("the task of eight keys ran as number %d of %d, %d places late", place, 1+backlog+after, late)
	}
	receive(r.T, done)
}

// onlyA counts the attempts that lock nothing but key a.
type onlyA struct {
	locking.Locker
	n atomic.Int64
}

func (l *onlyA) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	if slices.Equal(keys, []string{"a"}) {
		l.n.Add(1)
	}
	return l.Locker.Acquire(ctx, keys, opts)
}

func TestATaskWhoseKeyIsSoonFreeKeepsNoOtherKeyMeanwhile(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		locker := &onlyA{Locker: r.locker}
		begun, done := make(chan string, 1), make(chan string, 1)
		r.serveKeysWith(locker, 16, func(task *asynq.Task) {
			begun <- task.Type()
			time.Sleep(100 * time.Millisecond)
			done <- task.Type()
		})
		time.Sleep(time.Second) // virtual: slots are free
		for range 3 {           // it is known how long the key is held
			r.enqueueKeys("narrow", "b")
			receive(r.T, begun)
			receive(r.T, done)
		}
		r.enqueueKeys("narrow", "b")
		receive(r.T, begun)
		r.enqueueKeys("wide", "a", "b")
		receive(r.T, done)
		if kind := receive(r.T, begun); kind != "wide" {
			r.Errorf("%q began", kind)
		}
		receive(r.T, done)
		if n := locker.n.Load(); n > 0 {
			r.Errorf("%d attempts to lock the free key alone", n)
		}
	})
}

func TestCollectingTasksNeverWaitInACircle(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 60
		keys := eightKeys()
		done := make(chan struct{}, tasks)
		for i := range tasks { // each with half of the keys, beginning at another one, and in both directions
			some := append(slices.Clone(keys[i%8:]), keys[:i%8]...)[:4]
			if i%2 == 1 {
				slices.Reverse(some)
			}
			r.enqueueKeys("wide", some...)
		}
		for range 3 { // servers of their own budgets, which know nothing of one another
			r.serveKeys(8, func(*asynq.Task) {
				time.Sleep(20 * time.Millisecond)
				done <- struct{}{}
			})
		}
		began := time.Now()
		for range tasks {
			receive(r.T, done)
		}
		r.Logf("%d tasks of 4 of 8 keys took %v", tasks, time.Since(began))
	})
}

// refusedOften has a task look as one that was refused n times before its server starts.
func (r *rig) refusedOften(task delayqueue.Task, n int) {
	r.Helper()
	if err := r.client.HSet(context.Background(), "asynq:{"+task.Queue+"}:t:"+task.ID, line.WaitField,
		line.Wait{Conflict: line.Conflict{Count: n, First: time.Now()}}.String()).Err(); err != nil {
		r.Fatal(err)
	}
}

func TestATaskThatCollectsInVainGivesBackItsKeys(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"its time is up": false, "the server stops": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				r.hold("b")
				r.refusedOften(r.enqueueKeys("wide", "a", "b"), 3)
				ran := make(chan time.Time, 1)
				server := r.serveKeys(8, func(*asynq.Task) { ran <- time.Now() })
				r.until(time.Second, "a is collected", func() bool { return r.client.Exists(context.Background(), "railtoken:lock:{a}").Val() == 1 })
				began := time.Now()
				r.enqueueKeys("narrow", "a")
				if stop {
					r.until(time.Second, "the other task waits", func() bool { return r.client.ZCard(context.Background(), "railtoken:waiters:{a}").Val() == 1 })
					r.attached.Stop()
					server.Shutdown()
					if n := r.client.Exists(context.Background(), "railtoken:lock:{a}").Val(); n != 0 || time.Since(began) > time.Second {
						r.Errorf("after %v the key that was collected is locked: %v", time.Since(began), n == 1)
					}
					return
				}
				if took := receive(r.T, ran).Sub(began); took < 2*time.Second || took > 4*time.Second {
					r.Errorf("the task that was refused meanwhile ran after %v, want some 3s", took)
				}
			})
		})
	}
}
