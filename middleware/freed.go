package middleware

import (
	"sync"

	"github.com/railtoken/railtoken/delayqueue"
)

// mostFreed is how many tasks are remembered at a time that found their keys free as they were to be parked.
const mostFreed = 1024

// freed remembers the tasks that found their keys free as they were to be parked, until they run again. Redis and the locker may differ for seconds:
// a lease of this process that was lost, and that it has not missed yet, is refused here and free there. A task that believed Redis
// a second time would run again and again meanwhile.
//
// A task that is forgotten, because there are too many, costs one more run.
type freed struct {
	mu    sync.Mutex
	tasks map[delayqueue.Task]string // to their keys
}

// add remembers a task and its key.
func (f *freed) add(t delayqueue.Task, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tasks == nil || len(f.tasks) >= mostFreed {
		f.tasks = map[delayqueue.Task]string{} // others run the tasks, or nobody does
	}
	f.tasks[t] = key
}

// take forgets a task, and returns the key that it found free; "" when it did not.
func (f *freed) take(t delayqueue.Task) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.tasks[t]
	delete(f.tasks, t)
	return key
}
