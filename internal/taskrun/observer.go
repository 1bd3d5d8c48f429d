package taskrun

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Recovered is the kind of the event of a task that was taken back: see attach.Recovered.
const Recovered = "recovered"

// Superseded is the kind of the event of a payload that does not run: see attach.Superseded.
const Superseded = "superseded"

// CallObserver calls an observer with an event about a task. If the observer panics, the panic is logged with its stack and
// goes no further, because an observer must not make a task fail.
func CallObserver[T fmt.Stringer](ctx context.Context, log *slog.Logger, event string, task T, observer func()) {
	defer func() {
		if x := recover(); x != nil {
			log.ErrorContext(ctx, "the observer panicked; the task goes on", "event", event, "task", task.String(),
				"panic", fmt.Sprint(x), "stack", string(debug.Stack()))
		}
	}()
	observer()
}
