package broker

import (
	"sync"
	"sync/atomic"
)

// taskSet is a set of tasks, nearly always empty. It is safe for concurrent use.
type taskSet struct {
	size  atomic.Int64
	tasks sync.Map
}

func (t *taskSet) add(queue, id string) {
	if _, known := t.tasks.LoadOrStore(queue+"/"+id, nil); !known {
		t.size.Add(1)
	}
}

// remove reports whether the task was in the set.
func (t *taskSet) remove(queue, id string) bool {
	if t.size.Load() == 0 {
		return false
	}
	_, known := t.tasks.LoadAndDelete(queue + "/" + id)
	if known {
		t.size.Add(-1)
	}
	return known
}
