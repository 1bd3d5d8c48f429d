package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
)

var errRefused = errors.New("refused")

// worker is what a middleware does with a Queue: it tries the keys of a task one after another, has it park for the one
// that is held, and wakes the next after it has given them back. Its locks are plain keys that never expire; on a
// Cluster they are elsewhere. After a park that has not looked at them it looks once more.
type worker struct {
	*rig
	queue *line.Engine

	mu   sync.Mutex
	runs map[string]int
	done chan string
}

func (w *worker) lockOf(key string) string { return "lock:{" + w.key(key) + "}" }

// lock takes all keys, or none and returns the one that is held.
func (w *worker) lock(ctx context.Context, keys []string) (held string, err error) {
	for i, key := range keys {
		ok, err := w.Client.SetNX(ctx, w.lockOf(key), "1", 0).Result()
		if err != nil {
			return "", err
		}
		if !ok {
			return key, w.unlock(ctx, keys[:i])
		}
	}
	return "", nil
}

func (w *worker) unlock(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := w.Client.Del(ctx, w.lockOf(key)).Err(); err != nil {
			return err
		}
		// It may have been taken for a moment only, but whoever was refused in it waits.
		if _, err := w.Engine.Wake(ctx, w.key(key), line.WakeOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) process(ctx context.Context, id string) error {
	_, wanted, _ := strings.Cut(id, "@")
	keys := strings.Split(wanted, ",")
	run, err := w.Engine.Run(w.task(id))
	if err != nil {
		return err
	}
	defer run.End(ctx)
	held, err := w.lock(ctx, keys)
	if err != nil {
		return err
	}
	if held == "" {
		return w.work(ctx, w.task(id), keys)
	}
	opts := line.ParkOptions{RetryAfter: time.Hour}
	if w.on != "cluster" {
		opts.Locks = []line.RedisKeys{{Lock: w.lockOf(held), Notify: w.lockOf(held) + ":notify"}}
	}
	run.Park(w.key(held), opts, func(p line.Parked) {
		if !p.Looked {
			w.lookAgain(held)
		}
	})
	return errRefused
}

// lookAgain wakes the next in line when the key was given back before the task was parked.
func (w *worker) lookAgain(key string) {
	ctx := context.WithoutCancel(w.Context())
	held, err := w.lock(ctx, []string{key})
	if err == nil && held == "" {
		err = w.unlock(ctx, []string{key})
	}
	if err != nil {
		w.Error(err)
	}
}

// work is a task's turn.
func (w *worker) work(ctx context.Context, task line.Task, keys []string) error {
	w.mu.Lock()
	w.runs[task.ID]++
	w.mu.Unlock()
	for _, key := range keys {
		if err := w.Client.Del(ctx, w.lockOf(key)).Err(); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if _, err := w.Engine.Wake(ctx, w.key(key), line.WakeOptions{Leaver: task}); err != nil {
			return err
		}
	}
	w.done <- task.ID
	return nil
}

// The tasks' timers are an hour: one wake that is lost, and the test does not end.
func TestNoWakeIsLostAmongManyWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const tasks, workers = 120, 3
		done := make(chan string, 10*tasks)
		var all []*worker
		for range workers {
			w := &worker{
				rig: r, queue: r.newQueue(shared.clientOf(t, r.on), line.Options{}), runs: map[string]int{},
				done: done,
			}
			all = append(all, w)
			linetest.Serve(t, w.Engine, asynq.Config{Concurrency: 4, Queues: map[string]int{r.name: 1}}, w.process)
		}
		wanted := []string{"one", "two", "one,two", "one", "three,one"}
		for i := range tasks {
			id := fmt.Sprintf("t%d@%s", i, wanted[i%len(wanted)])
			if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.Queue(r.name), asynq.TaskID(id),
				asynq.Timeout(time.Minute), asynq.MaxRetry(i%2)); err != nil {
				t.Fatal(err)
			}
		}
		for range tasks {
			receive(t, done)
		}
		runs := map[string]int{}
		for _, w := range all {
			w.mu.Lock()
			for id, n := range w.runs {
				runs[id] += n
			}
			w.mu.Unlock()
		}
		for id, n := range runs {
			if n != 1 {
				t.Errorf("%s ran %d times", id, n)
			}
		}
		for _, key := range []string{"one", "two", "three"} {
			if got := r.Waiting(key); len(got) != 0 {
				t.Errorf("for %s still wait %v", key, got)
			}
		}
		r.indexed("in the end")
	})
}

// Of wakes and timers that find the same waiters at the same time, each waiter is promoted by one, and the line is
// emptied.
func TestWakesOfManyKindsWakeEachWaiterOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const waiters = 60
		var mu sync.Mutex
		heard := map[line.Task]int{}
		var tasks []line.Task
		for i := range waiters {
			task := r.Delayed(fmt.Sprint(i))
			r.Park(task, "k")
			tasks = append(tasks, task)
		}
		var wg sync.WaitGroup
		for i := range 6 {
			queue := r.newQueue(shared.clientOf(t, r.on), line.Options{Woken: func(t line.Task) {
				mu.Lock()
				defer mu.Unlock()
				heard[t]++
			}})
			wg.Go(func() {
				for j := range waiters / 6 {
					var err error
					switch i % 3 {
					case 0:
						_, err = queue.Wake(t.Context(), r.key("k"), line.WakeOptions{})
					case 1:
						_, err = queue.Wake(t.Context(), r.key("k"), line.WakeOptions{Most: 3})
					case 2:
						_, err = queue.WakeTask(t.Context(), r.key("k"), tasks[waiters-1-j])
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		r.Until("nobody is in line", func() bool {
			r.Wake("k")
			return len(r.Waiting("k")) == 0
		})
		for _, task := range tasks {
			if n := heard[task]; n > 1 {
				t.Errorf("%s was woken %d times", task, n)
			}
		}
		pending := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val()
		slices.Sort(pending)
		if n := len(slices.Compact(pending)); n != waiters || len(pending) != waiters {
			t.Errorf("%d tasks are pending, %d of them different; want %d", len(pending), n, waiters)
		}
		r.indexed("in the end")
	})
}
