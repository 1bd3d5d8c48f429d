// Package observe calls functions of the user's that only watch.
package observe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Call calls an observer with an event about a task. A panic of the observer is logged with its stack and goes no
// further, because an observer must not fail a task.
func Call(ctx context.Context, log *slog.Logger, event, task string, observer func()) {
	defer func() {
		if x := recover(); x != nil {
			log.ErrorContext(ctx, "the observer panicked; the task goes on", "event", event, "task", task,
				"panic", fmt.Sprint(x), "stack", string(debug.Stack()))
		}
	}()
	observer()
}
