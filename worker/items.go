package worker

import (
	"fmt"

	"github.com/railtoken/railtoken/items"
)

// HandleItems registers a handler for the tasks of one type, each made of many items with locks of their own: see
// package items. The type must match exactly. It reports all problems with the handler in one error. Register all
// handlers before the worker starts.
func HandleItems[T, I any](w *Worker, taskType string, h items.Handler[T, I]) error {
	if taskType == "" {
		return fmt.Errorf("worker: handler of %q: the type of its tasks is empty", taskType)
	}
	if h.Strategy == nil {
		h.Strategy = w.cfg.Strategy
	}
	handler, err := items.New(w.attached, h)
	if err != nil {
		return fmt.Errorf("worker: handler of %q: %w", taskType, err)
	}
	return w.register(taskType, handler)
}
