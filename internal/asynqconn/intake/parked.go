package intake

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/keys"
)

// Parking has tasks parked in the call that fetches them, if their keys are held and [fused.Types] has a Wait for their
// type. They have no run and no slot, and asynq never sees them.
type Parking struct {
	// Source is that of the Lua function park: see park_fetched.lua of package parking.
	Source string
	// Index names the sorted set of all parked tasks, and Idle is how long an idle set of waiters is kept.
	Index string
	Idle  time.Duration
	// Parked is called with the tasks that a call has parked. If its reply was lost, they wait all the same, and nobody is
	// told.
	Parked func(tasks []Parked)
}

// Parked is a task that was parked as it was fetched.
type Parked struct {
	Task    // as it was before, without its message
	Type    string
	Keys    []string
	Held    error // a *locking.HeldError with the key that it waits for
	Attempt int   // its retry count
	// Conflicts, First (us), Waiters, Ahead and Timer are those of [parking.Parked].
	Conflicts      int
	First          string
	Waiters, Ahead int
	Timer          time.Duration
}

// parkedFields is how many values a script returns of a parked task.
const parkedFields = 14

// withParking returns the source of a script that takes tasks. park may be nil.
func withParking(park *Parking, source string) string {
	function := ""
	if park != nil {
		function = park.Source
	}
	return "local function parking()\n" + function + "\nend\n" + source
}

// parked reads the tasks that a call has parked.
func (r reader) parked(value any) (tasks []Parked, err error) {
	list, ok := value.([]any)
	if !ok || len(list)%parkedFields != 0 || r.park == nil {
		return nil, fmt.Errorf("%w: parked %v", errReply, value)
	}
	var lock any // the value of the lock of the task before
	tasks = make([]Parked, 0, len(list)/parkedFields)
	for ; len(list) > 0; list = list[parkedFields:] {
		queue, err := r.queue(list[0])
		if err != nil {
			return nil, err
		}
		text := func(i int) string { s, _ := list[i].(string); return s }
		number := func(i int) int { n, _ := list[i].(int64); return int(n) }
		p := Parked{
			Task: Task{Queue: queue, ID: text(1), Recorded: text(3)}, Type: text(2),
			Attempt: number(8), Conflicts: number(9), First: text(10), Waiters: number(11), Ahead: number(12),
			Timer: time.Duration(number(13)) * time.Millisecond,
		}
		if p.Conflicts > 1 {
			p.Task.Retried, p.Task.Conflicts, p.Task.First = strconv.Itoa(p.Attempt), strconv.Itoa(p.Conflicts-1), p.First
		}
		if last := len(tasks) - 1; last >= 0 && tasks[last].Recorded == p.Recorded && list[5] == lock {
			p.Keys, p.Held = tasks[last].Keys, tasks[last].Held
		} else {
			p.Keys, p.Held = r.refused(p.Recorded, text(4), list[5:8])
		}
		lock = list[5]
		tasks = append(tasks, p)
	}
	return tasks, nil
}

// refused returns the recorded keys of a task, and that another holder has one of them.
func (r reader) refused(recorded, encoded string, lock []any) (all []string, held error) {
	for each := range strings.SplitSeq(recorded, " ") {
		name, _ := keys.Decode(each)
		all = append(all, name)
	}
	key, ok := keys.Decode(encoded)
	if !ok {
		return all, fmt.Errorf("%w: key %q", errReply, encoded)
	}
	return all, r.locks.Refusal(key, lock[0], lock[1], lock[2])
}
