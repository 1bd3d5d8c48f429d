package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

var errCrash = errors.New("the process has crashed")

// crash is a process that ends after some commands. Of a pipeline to several nodes some commands may arrive and others not: the
// first ones do, or with last the last ones.
type crash struct {
	mu     sync.Mutex
	left   int
	last   bool
	struck bool
}

// after lets n more commands through.
func (c *crash) after(n int, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.last, c.struck = n, last, false
}

// grant returns how many of n commands are still sent.
func (c *crash) grant(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := min(n, c.left)
	c.left -= granted
	c.struck = c.struck || granted < n
	return granted
}

func (c *crash) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.grant(1) == 0 {
			cmd.SetErr(errCrash)
			return errCrash
		}
		return next(ctx, cmd)
	}
}

func (c *crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n := c.grant(len(cmds))
		sent, lost := cmds[:n], cmds[n:]
		if c.last {
			sent, lost = cmds[len(cmds)-n:], cmds[:len(cmds)-n]
		}
		for _, cmd := range lost {
			cmd.SetErr(errCrash)
		}
		if len(sent) == 0 {
			return errCrash
		}
		err := next(ctx, sent)
		if len(lost) > 0 {
			return errCrash
		}
		return err
	}
}

// heals are the ways in which things go on after a crash.
var heals = map[string]func(r *rig, s scene){
	// Later wakes find who is in line, and the others' timers bring them back. Each of them gets its key and is done.
	"tasks run": func(r *rig, s scene) {
		for _, key := range s.keys() {
			r.wakeAll(key)
		}
		stranded := 0
		for id := range s.tasks {
			if !r.isPending(r.task(id)) {
				stranded++
			}
		}
		if stranded > s.stranded {
			r.Errorf("%d tasks depend on their timers, want at most %d", stranded, s.stranded)
		}
		r.runAll(s)
	},
	// Timers bring back those who wait, they are refused once more, and are then woken.
	"tasks park again": func(r *rig, s scene) {
		for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
			if id == s.next && slices.Contains(r.waiting(s.tasks[id]), id) {
				r.Errorf("the wake that a had had was not passed on to %s", id)
			}
			if !r.isPending(r.task(id)) {
				r.dequeue(r.task(id))
				r.park(r.task(id), s.tasks[id])
				r.shelve(r.task(id))
			}
		}
		for _, key := range s.keys() {
			if got, want := r.waiting(key), len(slices.Compact(slices.Sorted(slices.Values(r.waiting(key))))); len(got) != want {
				r.Errorf("for %s wait %v", key, got)
			}
			r.wakeAll(key)
		}
		for id := range s.tasks {
			if !r.isPending(r.task(id)) {
				r.Errorf("%s was not woken", id)
			}
		}
		r.runAll(s)
	},
	// An operator deletes them all.
	"tasks are deleted": func(r *rig, s scene) {
		for id := range s.tasks {
			r.remove(r.task(id))
		}
		for _, key := range s.keys() {
			r.wakeAll(key)
		}
	},
}

func (s scene) keys() []string {
	return slices.Compact(slices.Sorted(maps.Values(s.tasks)))
}

func TestACrashBetweenTheStepsCostsDelayAndNothingElse(t *testing.T) {
	t.Parallel()
	client := shared.clientOf(t, "cluster")
	if err := delayqueue.LoadSteps(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			healthy, client := shared.clientOf(t, "cluster"), shared.clientOf(t, "cluster")
			process := &crash{}
			client.AddHook(process)
			for healing, heal := range heals {
				for _, last := range []bool{false, true} {
					for n, struck := 0, true; struck; n++ {
						r := newRigOn(t, "cluster", healthy)
						s.setUp(r)
						process.after(n, last)
						queue := r.newQueue(client, delayqueue.Options{})
						err := s.call(r, queue)
						_ = queue.Close()
						struck = process.struck
						if n == 0 && err == nil {
							t.Error("a call of which nothing arrived has succeeded")
						}
						if !struck && err != nil {
							t.Errorf("without a crash: %v", err)
						}
						r.mustHaveOnce(s)
						heal(r, s)
						r.mustHaveNothingLeft(s)
						if t.Failed() {
							t.Fatalf("after %d commands (%v), when %s", n, err, healing)
						}
					}
				}
			}
		})
	}
}

// mustHaveOnce fails the test when asynq has one of the tasks not exactly once, pending or delayed.
func (r *rig) mustHaveOnce(s scene) {
	r.Helper()
	prefix := "asynq:{" + r.name + "}:"
	pending := r.client.LRange(r.Context(), prefix+"pending", 0, -1).Val()
	delayed := r.client.ZRange(r.Context(), prefix+"scheduled", 0, -1).Val()
	for id := range s.tasks {
		n := 0
		for _, other := range slices.Concat(pending, delayed) {
			if other == id {
				n++
			}
		}
		if n != 1 {
			r.Errorf("asynq has %s %d times: pending %v, delayed %v", id, n, pending, delayed)
		}
	}
}

// runAll lets each task take its key, wake the next, and be done.
func (r *rig) runAll(s scene) {
	r.Helper()
	for id, key := range s.tasks {
		r.dequeue(r.task(id))
		if _, err := r.queue.Wake(r.Context(), r.key(key), delayqueue.WakeOptions{Leaver: r.task(id)}); err != nil {
			r.Fatal(err)
		}
		r.finish(r.task(id))
	}
	for id := range s.tasks {
		if slices.Contains(r.parked(), entry(r.task(id))) {
			r.Errorf("%s is still in the index", id)
		}
	}
}

// mustHaveNothingLeft fails the test when somebody is still in a line, or counts as parked.
func (r *rig) mustHaveNothingLeft(s scene) {
	r.Helper()
	for _, key := range s.keys() {
		if got := r.waiting(key); len(got) != 0 {
			r.Errorf("for %s wait %v for ever", key, got)
		}
	}
	if place := r.parkTotal(r.delayed("new"), "k", 1); place.Bound != delayqueue.NoBound {
		r.Errorf("there is no room: %+v", place)
	}
	r.indexed("after a look", r.task("new"))
}

// wakeAll wakes until nobody is in line.
func (r *rig) wakeAll(key string) {
	r.Helper()
	for range 10 {
		if woken := r.wake(key); len(woken.Tasks) == 0 && !woken.Pending {
			return
		}
	}
	r.Errorf("ten wakes did not empty the line for %s", key)
}

func (r *rig) isPending(t delayqueue.Task) bool {
	r.Helper()
	return slices.Contains(r.client.LRange(r.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(), t.ID)
}

// dequeue does what asynq does when a worker takes a task, whose timer has ended if it was delayed.
func (r *rig) dequeue(t delayqueue.Task) {
	r.Helper()
	prefix := fmt.Sprintf("asynq:{%s}:", t.Queue)
	n := r.client.LRem(r.Context(), prefix+"pending", 1, t.ID).Val() + r.client.ZRem(r.Context(), prefix+"scheduled", t.ID).Val()
	if n != 1 {
		r.Errorf("%s was there %d times", t, n)
	}
	r.set(t, "state", "active")
}

// shelve does what asynq does with a task that was refused.
func (r *rig) shelve(t delayqueue.Task) {
	r.Helper()
	due := redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: t.ID}
	if err := r.client.ZAdd(r.Context(), "asynq:{"+t.Queue+"}:scheduled", due).Err(); err != nil {
		r.Fatal(err)
	}
	r.set(t, "state", "scheduled")
}

// finish does what asynq does with a task that is done.
func (r *rig) finish(t delayqueue.Task) {
	r.Helper()
	prefix := "asynq:{" + t.Queue + "}:"
	pipe := r.client.Pipeline()
	pipe.ZRem(r.Context(), prefix+"scheduled", t.ID)
	pipe.Del(r.Context(), hash(t))
	if _, err := pipe.Exec(r.Context()); err != nil {
		r.Fatal(err)
	}
}
