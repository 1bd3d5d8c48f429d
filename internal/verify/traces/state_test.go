package traces

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Places of a task, as trace.pml numbers them.
const (
	pending = iota
	active
	retry
	done
	archived
	nowhere // or in two sets at once
)

// taskState is what is compared of a task.
type taskState struct {
	place int
	runs  int // that it has begun
	waits int // 1 + the key that it waits for, or 0
}

// keyState is what is compared of a key.
type keyState struct {
	owner  int // 1 + the task whose run has taken the lock, or 0
	run    int // which of its runs
	raised int // how often the fence counter has risen
}

// state is what is compared after an event.
type state struct {
	tasks []taskState
	keys  []keyState
}

func (s state) equal(o state) bool {
	return slices.Equal(s.tasks, o.tasks) && slices.Equal(s.keys, o.keys)
}

func (s state) String() string {
	var parts []string
	for i, t := range s.tasks {
		text := fmt.Sprintf("t%d %s in run %d", i, [...]string{"pending", "active", "retry", "done", "archived", "nowhere"}[t.place], t.runs)
		if t.waits > 0 {
			text += fmt.Sprintf(" waits for k%d", t.waits-1)
		}
		parts = append(parts, text)
	}
	for i, k := range s.keys {
		text := fmt.Sprintf("k%d free", i)
		if k.owner > 0 {
			text = fmt.Sprintf("k%d of t%d run %d", i, k.owner-1, k.run)
		}
		parts = append(parts, fmt.Sprintf("%s raised %d", text, k.raised))
	}
	return strings.Join(parts, ", ")
}

// names are the tasks and keys of a run, which are numbered in this order, and the queue.
type names struct {
	queue       string
	tasks, keys []string
}

// view derives the state from a replica, and counts what the replica does not keep.
type view struct {
	names
	r        *replica
	now      state
	lastRun  []string // of each task
	counters []int64
	owners   []string // value of each lock
}

func newView(n names, r *replica) *view {
	v := &view{names: n, r: r, lastRun: make([]string, len(n.tasks)), counters: make([]int64, len(n.keys)), owners: make([]string, len(n.keys))}
	v.now = state{make([]taskState, len(n.tasks)), make([]keyState, len(n.keys))}
	return v
}

func lockOf(key string) string { return "railtoken:lock:{" + key + "}" }

// look derives the state anew.
func (v *view) look() {
	v.now = state{slices.Clone(v.now.tasks), slices.Clone(v.now.keys)}
	for i, id := range v.tasks {
		v.lookAtTask(i, id)
	}
	for i, key := range v.keys {
		v.lookAtKey(i, key)
	}
}

func (v *view) lookAtTask(i int, id string) {
	t, m, hash := &v.now.tasks[i], v.r.m, asynqwire.Hash(v.queue, id)
	in := func(list string) bool {
		ids, _ := m.List(list)
		return slices.Contains(ids, id)
	}
	among := func(set string) bool {
		ids, _ := m.ZMembers(set)
		return slices.Contains(ids, id)
	}
	var places []int
	if in(asynqwire.Pending(v.queue)) {
		places = append(places, pending)
	}
	if in(asynqwire.Active(v.queue)) {
		places = append(places, active)
	}
	if among(asynqwire.Retry(v.queue)) {
		places = append(places, retry)
	}
	if among(asynqwire.Archived(v.queue)) {
		places = append(places, archived)
	}
	exists := m.Exists(hash)
	if !exists && len(places) == 0 {
		places = append(places, done)
	}
	t.place = nowhere
	if len(places) == 1 && exists != (places[0] == done) && among(asynqwire.Lease(v.queue)) == (places[0] == active) {
		t.place = places[0]
	}
	if run := m.HGet(hash, asynqwire.PendingSinceField); t.place == active && run != v.lastRun[i] {
		t.runs++
		v.lastRun[i] = run
	}
	t.waits = 0
	for k, key := range v.keys {
		waiters, _ := m.ZMembers("railtoken:waiters:{" + key + "}")
		if t.place == retry && slices.Contains(waiters, fmt.Sprintf("%d:%s%s", len(v.queue), v.queue, id)) {
			t.waits = 1 + k
		}
	}
}

func (v *view) lookAtKey(i int, key string) {
	k, m, lock := &v.now.keys[i], v.r.m, lockOf(key)
	owner, _ := m.Get(lock)
	switch {
	case owner == "":
		k.owner, k.run = 0, 0
	case owner != v.owners[i]:
		k.owner, k.run = 0, 0
		for t, id := range v.tasks {
			if strings.HasSuffix(owner, "/"+id) {
				k.owner, k.run = 1+t, v.now.tasks[t].runs
			}
		}
	}
	v.owners[i] = owner
	value, _ := m.Get(lock + ":fence")
	number, _, _ := strings.Cut(value, " ")
	counter, _ := strconv.ParseInt(number, 10, 64)
	if counter > v.counters[i] {
		k.raised++
	}
	v.counters[i] = max(counter, v.counters[i])
}
