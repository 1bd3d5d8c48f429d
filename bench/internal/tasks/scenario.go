package tasks

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

const (
	hotWork   = 5 * time.Millisecond
	otherWork = 20 * time.Millisecond
	// settled is enough for workers that are idle to have taken a task that was enqueued.
	settled = 100 * time.Millisecond
)

// Slots is how many tasks a contestant works on at a time.
const Slots = 32

// Task is one piece of work.
type Task struct {
	// N is the task's place in its scenario: the order in which tasks are enqueued.
	N int
	// Key is what no other task may work on at the same time.
	Key string
	// Work is how long the task takes.
	Work time.Duration
	// Queue is where the task is enqueued.
	Queue string
	// Aside says that the task is there to be in the way of the others: a run does not wait for it, and it does not
	// count.
	Aside bool
	// After is how long after the start the task is enqueued: before it when 0.
	After time.Duration
}

// Scenario is what all contestants have to do.
type Scenario struct {
	Name, Title string
	Tasks       []Task
	// Bare is how many tasks the contestant without locks works on at a time.
	Bare int
	// Slots is how many the others work on, [Slots] when 0.
	Slots int
	// Producers is how many enqueue at the same time, 1 when 0: then tasks are enqueued in their order.
	Producers int
	// Busy has another process keep a processor busy meanwhile.
	Busy bool
	// Computes has tasks compute instead of wait.
	Computes bool
}

// slots returns how many tasks a contestant works on at a time.
func (s Scenario) slots() int { return cmp.Or(s.Slots, Slots) }

// busy returns the same tasks beside a process that keeps a processor busy.
func (s Scenario) busy() Scenario {
	s.Name, s.Title, s.Busy = s.Name+"-busy", s.Title+", beside a busy processor", true
	return s
}

// computing returns the same tasks, which compute for a time instead of waiting.
func (s Scenario) computing() Scenario {
	s.Name, s.Title, s.Computes = s.Name+"-computes", fmt.Sprintf("%s, but each computes for %v", s.Title, computedWork), true
	s.Tasks = slices.Clone(s.Tasks)
	for i := range s.Tasks {
		s.Tasks[i].Work = computedWork
	}
	return s
}

// The type of all tasks, and the queue of those that are all alike.
const (
	taskType     = "work"
	DefaultQueue = "default"
)

// Repeat returns a scenario with each tasks for each of so many keys, shuffled: the same for the same seed.
func Repeat(name string, keys, each int, work time.Duration, seed uint64) Scenario {
	s := Scenario{Name: name, Title: fmt.Sprintf("%d tasks x %v for each key (keys: %d)", each, work, keys), Bare: min(keys, Slots)}
	for i := range each * keys {
		s = s.with(Task{Key: fmt.Sprint("key:", i%keys), Work: work})
	}
	return s.shuffled(seed)
}

// Distinct returns the same tasks, each with a key of its own: what they cost when none has to wait.
func (s Scenario) Distinct() Scenario {
	s.Name += " without conflicts"
	s.Tasks = slices.Clone(s.Tasks)
	for i := range s.Tasks {
		s.Tasks[i].Key = fmt.Sprint("own:", i)
	}
	return s
}

// withoutAside returns the same without the tasks aside.
func (s Scenario) withoutAside() Scenario {
	s.Name += " alone"
	s.Tasks = slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.Aside })
	return s.numbered()
}

// Keys returns the number of different keys.
func (s Scenario) Keys() int {
	keys := map[string]bool{}
	for _, t := range s.Tasks {
		keys[t.Key] = true
	}
	return len(keys)
}

// Ideal returns the least time in which the tasks can be done when each key has one at a time: that of the key with the
// most work, or of all work spread over the slots when that is more, or over the processors if it computes.
func (s Scenario) Ideal() time.Duration {
	var total, longest time.Duration
	keys := map[string]time.Duration{}
	for _, t := range s.Tasks {
		total += t.Work
		keys[t.Key] += t.Work
		longest = max(longest, keys[t.Key])
	}
	side := s.slots()
	if s.Computes {
		side = min(side, runtime.NumCPU())
	}
	return max(longest, total/time.Duration(side))
}

// early returns the tasks that are enqueued before the start, and late the others in the order of their times.
func (s Scenario) early() []Task {
	return slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.After > 0 })
}

func (s Scenario) late() []Task {
	all := slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.After == 0 })
	slices.SortStableFunc(all, func(a, b Task) int { return cmp.Compare(a.After, b.After) })
	return all
}

// weights gives every queue the same weight.
func (s Scenario) weights() map[string]int {
	weights := map[string]int{}
	for _, t := range s.Tasks {
		weights[t.Queue] = 1
	}
	return weights
}

// with returns the scenario with one more task, in the default queue unless it names one.
func (s Scenario) with(t Task) Scenario {
	t.N, t.Queue = len(s.Tasks), cmp.Or(t.Queue, DefaultQueue)
	s.Tasks = append(s.Tasks, t)
	return s
}

// shuffled returns the tasks in another order, which is the same for the same seed.
func (s Scenario) shuffled(seed uint64) Scenario {
	shuffle(s.Tasks, seed)
	return s.numbered()
}

// numbered gives each task its place.
func (s Scenario) numbered() Scenario {
	for i := range s.Tasks {
		s.Tasks[i].N = i
	}
	return s
}

// shuffle brings the list into an order that is the same for the same seed.
func shuffle[T any](list []T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(len(list))))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// WithAHotKey returns tasks with keys of their own, and hot ones that all want the same key and are [Task.Aside]. The
// others are "behind" these, or "beside" them: then the hot ones are among the first half.
func WithAHotKey(name, where string, others, hot int) Scenario {
	s := Scenario{Name: name, Bare: Slots, Title: fmt.Sprintf(
		"%d tasks x %v with keys of their own %s %d x %v for one key, on %d slots", others, otherWork, where, hot, hotWork, Slots)}
	added := 0
	for n := range others {
		for added < hot && (where == "behind" || added*others <= 2*n*hot) {
			s = s.with(Task{Key: "hot", Work: hotWork, Aside: true})
			added++
		}
		s = s.with(Task{Key: fmt.Sprint("own:", n), Work: otherWork})
	}
	return s
}

// Pairs returns two tasks for each of n keys: a holder that works for half a second to one and a half, each for another
// time, and one that waits for it, which comes later.
func Pairs(n int) Scenario {
	s := Scenario{Name: "wake-all", Bare: Slots, Title: fmt.Sprintf(
		"%d keys, each held for 0.5 to 1.5 s while one task waits for it", n)}
	for i := range n {
		held := 500*time.Millisecond + time.Duration(i)*time.Second/time.Duration(n)
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: held})
	}
	for i := range n {
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: time.Millisecond, After: settled})
	}
	return s
}

// HandOffs returns n holders in the queue of the waiters and as many in the other one, and a waiter for each. The keys
// are held one after the other, so that the workers have nothing else to do when one is released.
func HandOffs(n int) Scenario {
	s := Scenario{Name: "wake", Title: "railtoken, by the TaskCheckInterval and by which worker released the key"}
	at := func(step int) time.Duration { return time.Duration(step) * settled }
	for i := range 2 * n {
		queue := []string{waiterQueue, otherQueue}[i%2]
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: at(2), After: at(3 * i), Queue: queue})
	}
	for i := range 2 * n {
		s = s.with(Task{Key: fmt.Sprint("key:", i), Work: time.Millisecond, After: at(3*i + 1), Queue: waiterQueue})
	}
	return s
}
