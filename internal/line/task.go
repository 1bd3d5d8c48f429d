package line

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// Task names a task as asynq does: an ID is unique within a queue.
type Task struct {
	Queue string
	ID    string
}

// String returns "queue/id".
func (t Task) String() string { return t.Queue + "/" + t.ID }

// TaskOf returns the task of an asynq handler's context.
func TaskOf(ctx context.Context) (Task, error) {
	id, ok1 := asynq.GetTaskID(ctx)
	queue, ok2 := asynq.GetQueueName(ctx)
	if !ok1 || !ok2 {
		return Task{}, errors.New("delayqueue: the context is not an asynq handler's: pass on the one of ProcessTask")
	}
	return Task{Queue: queue, ID: id}, nil
}

// Entry returns the member that stands for the task in sorted sets. The length makes it unambiguous, whatever
// characters the names contain.
func (t Task) Entry() string { return strconv.Itoa(len(t.Queue)) + ":" + t.Queue + t.ID }

// ParseEntry returns the task of an entry.
func ParseEntry(member string) (Task, error) {
	size, rest, ok := strings.Cut(member, ":")
	n, err := strconv.Atoi(size)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return Task{}, fmt.Errorf("delayqueue: %q is not the entry of a task", member)
	}
	return Task{Queue: rest[:n], ID: rest[n:]}, nil
}

// taskOf returns the task of an entry. Of any other member it returns a task that cannot exist and counts as gone, as
// in task.lua.
func taskOf(member string) Task {
	t, _ := ParseEntry(member)
	return t
}

func tasksOf(members []string) (tasks []Task) {
	for _, member := range members {
		tasks = append(tasks, taskOf(member))
	}
	return tasks
}

// listed returns the names of all keys that a wake of the task touches, its hash first: see state.lua.
func (t Task) listed() []string {
	if t.Queue == "" { // it cannot exist, and without a queue its keys have no slot in common
		return []string{t.Hash()}
	}
	return []string{t.Hash(), asynqwire.Retry(t.Queue), asynqwire.Pending(t.Queue)}
}

// ended returns the names of all keys that the end of the task's run touches, its hash first: see state.lua. Only a
// call that may make the task pending needs the last one.
func (t Task) ended() []string {
	return []string{t.Hash(), asynqwire.Active(t.Queue), asynqwire.Lease(t.Queue), asynqwire.Retry(t.Queue), asynqwire.Pending(t.Queue)}
}

// Hash returns the name of the hash in which asynq keeps the task.
func (t Task) Hash() string { return asynqwire.Hash(t.Queue, t.ID) }

// Prefix begins the names of asynq's keys of the task's queue.
func (t Task) Prefix() string { return asynqwire.Prefix(t.Queue) }
