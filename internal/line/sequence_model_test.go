package line_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/line"
)

// Many workers on three keys: a task works when it is its turn, else its worker takes another. Some
// tasks never leave the line, as when their worker has died.
func TestTasksRunOneAtATimeInOrder(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	const perKey, workers = 60, 8
	lines := []string{"a", "b", "c"}
	busy, last := make([]atomic.Int32, len(lines)), make([]atomic.Int64, len(lines))
	var done atomic.Int32
	type job struct {
		key  int
		task line.Task
	}
	jobs := make(chan job, perKey*len(lines)) // stands for asynq's queues
	var all []job
	for i := range perKey * len(lines) {
		all = append(all, job{i % len(lines), line.Task{}})
		j := &all[i]
		j.task = r.enqueue(lines[j.key], asynq.TaskID(fmt.Sprint(i)), asynq.Queue(fmt.Sprintf("q%d", i%2)))
	}
	for _, i := range rand.Perm(len(all)) { // what comes out has nothing to do with the order in which it went in
		jobs <- all[i]
	}
	work := func(j job, turn line.Position) {
		if n := busy[j.key].Add(1); n != 1 {
			t.Errorf("%d tasks of key %s run at the same time", n, lines[j.key])
		}
		if at := turn.At.UnixMicro(); last[j.key].Swap(at) >= at {
			t.Errorf("%s was passed", j.task)
		}
		busy[j.key].Add(-1)
		remove := func() {
			if err := r.Inspect.DeleteTask(j.task.Queue, j.task.ID); err != nil {
				t.Error(err)
			}
		}
		early := rand.IntN(2) == 0
		if early { // its worker dies, or is slower to leave than asynq to delete it
			remove()
		}
		if !early || rand.IntN(2) == 0 {
			if _, err := r.Engine.Remove(t.Context(), j.task, lines[j.key]); err != nil {
				t.Error(err)
			}
		}
		if !early {
			remove()
		}
		done.Add(1)
	}
	deadline := time.Now().Add(limit)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for int(done.Load()) < len(all) && time.Now().Before(deadline) {
				select {
				case j := <-jobs:
					turn, err := r.Engine.Join(t.Context(), j.task, lines[j.key], line.JoinOptions{})
					switch {
					case err != nil:
						t.Error(err)
						return
					case turn.Ahead == 0:
						work(j, turn)
					default:
						jobs <- j
					}
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	group.Wait()
	if n := int(done.Load()); n != len(all) {
		t.Errorf("%d of %d tasks have run", n, len(all))
	}
	for _, key := range lines {
		r.remove(line.Task{Queue: "q", ID: "not in line"}, key) // it removes the dead
		if n := r.line(key); len(n) != 0 {
			t.Errorf("%v are left in the line of %s", n, key)
		}
	}
}

// A line does what a slice of tasks does, whatever happens in whichever order.
func TestASequenceIsAQueue(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		key := fmt.Sprintf("k%d", run)
		var model []line.Task // in line, the dead ones too
		dead, next := map[line.Task]bool{}, 0
		live := func() (tasks []line.Task) {
			for _, task := range model {
				if !dead[task] {
					tasks = append(tasks, task)
				}
			}
			return tasks
		}
		one := func() (line.Task, bool) {
			if tasks := live(); len(tasks) > 0 {
				return tasks[rapid.IntRange(0, len(tasks)-1).Draw(rt, "who")], true
			}
			return line.Task{}, false
		}
		ask := func(task line.Task) {
			turn := r.turn(task, key, line.JoinOptions{})
			for len(model) > 0 && dead[model[0]] { // Turn removes those before the first live one
				model = model[1:]
			}
			if want := slices.Index(model, task); turn.Ahead != want || want > 0 && turn.First != model[0] {
				rt.Fatalf("%s stands at %+v, want %d before it", task, turn, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) {
				task := r.Delayed(fmt.Sprintf("%s-%d", key, next), asynq.Queue(fmt.Sprintf("q%d", next%3)))
				next++
				model = append(model, task)
				ask(task)
			},
			"ask": func(*rapid.T) {
				if task, ok := one(); ok {
					ask(task)
				}
			},
			"die": func(*rapid.T) {
				if task, ok := one(); ok {
					r.gone(rapid.IntRange(0, 2).Draw(rt, "how"), task)
					dead[task] = true
				}
			},
			"leave": func(*rapid.T) {
				task, ok := one()
				if !ok {
					return
				}
				left := r.remove(task, key)
				model = slices.DeleteFunc(model, func(other line.Task) bool { return other == task })
				tasks := live()
				if want := tasks[:min(2, len(tasks))]; !slices.Equal(left.Next, want) {
					rt.Fatalf("next are %v, want %v", left.Next, want)
				}
				// Remove removes those before the second live one.
				for i, seen := 0, 0; i < len(model) && seen < 2; {
					if dead[model[i]] {
						model = slices.Delete(model, i, i+1)
						continue
					}
					seen++
					i++
				}
			},
		})
	})
}
