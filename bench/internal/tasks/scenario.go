package tasks

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
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
	// Type is that of asynq, and Queue where the task is enqueued.
	Type, Queue string
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
}

// DefaultType and DefaultQueue are those of tasks that are all alike.
const (
	DefaultType  = "work"
	DefaultQueue = "default"
)

// Repeat returns a scenario with each tasks for each of so many keys, shuffled: the same for the same seed.
func Repeat(name string, keys, each int, work time.Duration, seed uint64) Scenario {
	s := Scenario{
		Name:  name,
		Title: fmt.Sprintf("%d %s x %d tasks x %v", keys, plural(keys, "key"), each, work),
		Bare:  min(keys, Slots),
	}
	for range each {
		for k := range keys {
			s = s.with(Task{Key: fmt.Sprint("key:", k), Work: work})
		}
	}
	shuffle(s.Tasks, seed)
	s.number()
	return s
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
	s.number()
	return s
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
// most work, or of all work spread over the slots when that is more.
func (s Scenario) Ideal() time.Duration {
	var total, longest time.Duration
	keys := map[string]time.Duration{}
	for _, t := range s.Tasks {
		total += t.Work
		keys[t.Key] += t.Work
		longest = max(longest, keys[t.Key])
	}
	return max(longest, total/Slots)
}

// early returns the tasks that are enqueued before the start.
func (s Scenario) early() []Task {
	return slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.After > 0 })
}

// late returns the tasks that are enqueued after the start, in the order of their times.
func (s Scenario) late() []Task {
	all := slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.After == 0 })
	slices.SortStableFunc(all, func(a, b Task) int { return cmp.Compare(a.After, b.After) })
	return all
}

// types returns the types of the tasks.
func (s Scenario) types() []string {
	types := map[string]bool{}
	for _, t := range s.Tasks {
		types[t.Type] = true
	}
	return slices.Collect(maps.Keys(types))
}

// weights gives every queue the same weight.
func (s Scenario) weights() map[string]int {
	weights := map[string]int{}
	for _, t := range s.Tasks {
		weights[t.Queue] = 1
	}
	return weights
}

// with returns the scenario with one more task, of the default type, and in the default queue unless it names one.
func (s Scenario) with(t Task) Scenario {
	t.N, t.Type, t.Queue = len(s.Tasks), DefaultType, cmp.Or(t.Queue, DefaultQueue)
	s.Tasks = append(s.Tasks, t)
	return s
}

// number gives each task its place.
func (s Scenario) number() {
	for i := range s.Tasks {
		s.Tasks[i].N = i
	}
}

// shuffle brings the list into an order that is the same for the same seed.
func shuffle[T any](list []T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(len(list))))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
