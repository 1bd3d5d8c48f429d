package middleware

import (
	"context"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
)

// retry makes a call on behalf of waiting tasks, and repeats it while Redis refuses it, as it does during a failover.
// Without this a finished task would stay in the sequence, and the next one would have to wait for its timer. A worker
// that is shutting down tries once. If the call fails in the end, the log says what that means for the tasks.
func retry[T any](ctx context.Context, r *run, inVain string, call func(context.Context) (T, error)) (T, error) {
	reply, err := line.Retry(ctx, r.Stopping, call)
	if err != nil {
		r.Logger.WarnContext(ctx, "waking the next task failed", "result", inVain, "task", r.id.String(), "keys",
			logsafe.Keys(r.keys), "error", err)
	}
	return reply, err
}
