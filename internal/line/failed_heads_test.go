package line_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// failedHeads makes sequences whose heads have failed, with a task parked behind each, and has them watched.
func (r *rig) failedHeads(n int) (heads, next []line.Task) {
	r.Helper()
	for i := range n {
		key := fmt.Sprint("k", i)
		for _, id := range []string{"head", "next"} {
			task := r.begun(fmt.Sprint(id, i))
			if _, err := r.Engine.Join(r.Context(), task, r.key(key), line.JoinOptions{Strict: true}); err != nil {
				r.Fatal(err)
			}
			if id == "head" {
				r.failed(task)
				heads = append(heads, task)
			} else {
				r.Park(task, key)
				next = append(next, task)
			}
		}
		if err := r.Engine.Watch(r.Context(), r.key(key)); err != nil {
			r.Fatal(err)
		}
	}
	return heads, next
}

func TestAThousandFailedHeadsCostFewCommands(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, "standalone", redistest.Start(t).Client(t))
	const keys = 1000
	r.failedHeads(keys)
	r.Until("all are to be looked at", func() bool {
		return r.Client.ZCount(t.Context(), r.index()+":owed", "-inf", fmt.Sprint(time.Now().UnixMilli())).Val() == keys
	})
	r.must(r.Engine.PayOwed(t.Context())) // the first look is at each
	r.Engine.Conn(broker.Options{Queues: map[string]int{"elsewhere": 1}, Interval: time.Hour})
	before, began := r.commands(), time.Now()
	<-time.After(3 * time.Second)
	n := float64(r.commands()-before) / time.Since(began).Seconds()
	t.Logf("%.0f commands a second", n)
	if n > 100 || n < 5 {
		t.Errorf("%d heads that have failed cost %.0f commands a second", keys, n)
	}
}

func TestTheNextRunsWithinASecondOfAFailedHead(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(r *rig, head line.Task){
		"it is deleted":  func(r *rig, head line.Task) { r.Remove(head) },
		"it is archived": func(r *rig, head line.Task) { r.must(r.Inspect.ArchiveTask(head.Queue, head.ID)) },
		"its ID is another task's": func(r *rig, head line.Task) {
			r.Remove(head)
			r.again(head)
			r.failed(r.Begin(head))
			r.Client.ZIncrBy(r.Context(), head.Prefix()+"retry", 60, head.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachVirtual(t, func(t *testing.T, r *rig) {
				heads, next := r.failedHeads(10)
				r.Engine.Conn(broker.Options{Queues: map[string]int{"elsewhere": 1}, Interval: time.Hour})
				<-time.After(time.Second) // it is watched
				for i, head := range heads {
					<-time.After(110 * time.Millisecond) // soon after a look, or later
					ends(r, head)
					ended := time.Now()
					r.Become(next[i], asynq.TaskStatePending)
					if took := time.Since(ended); took > time.Second {
						t.Errorf("the next task was woken after %v", took)
					} else {
						t.Logf("the next task was woken after %v", took)
					}
				}
			})
		})
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// A wake notes that it is owed until its task has come. Another process, whose task has come, must not cross that note out.
func TestATaskThatHasComePaysForNoLaterWake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var tasks []line.Task
		for i := range 4 {
			tasks = append(tasks, r.begun(fmt.Sprint("t", i)))
			r.Park(tasks[i], "k")
		}
		one, other := r.newQueue(r.Client, line.Options{}), r.newQueue(r.Client, line.Options{})
		if woken, err := one.Wake(t.Context(), r.key("k"), line.WakeOptions{}); err != nil || woken.First() != tasks[0] {
			t.Fatalf("woke %+v, %v", woken, err)
		}
		one.Settle()
		note := func() (at float64) { return r.Client.ZScore(t.Context(), r.index()+":owed", r.registry("k")).Val() }
		before := note()
		r.Until("a later wake has a later note", func() bool {
			at := r.Client.Time(t.Context()).Val().UnixMilli()
			return float64(at) > before-1000+20
		})
		if woken, err := other.Wake(t.Context(), r.key("k"), line.WakeOptions{}); err != nil || woken.First() != tasks[1] {
			t.Fatalf("woke %+v, %v", woken, err)
		}
		other.Settle()
		r.must(other.Close())
		r.Begin(tasks[0])
		r.Remove(tasks[1])
		r.newQueue(r.Client, line.Options{}).Conn(broker.Options{Queues: map[string]int{"elsewhere": 1}, Interval: time.Hour})
		began := time.Now()
		for r.State(tasks[2]) != asynq.TaskStatePending {
			if time.Since(began) > 4*time.Second {
				t.Fatalf("the next waiter is not woken, note %v", redis.Z{Score: note()})
			}
			<-time.After(10 * time.Millisecond)
		}
	})
}
