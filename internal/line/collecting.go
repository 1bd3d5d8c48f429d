package line

import (
	"context"
	"crypto/rand"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

var (
	//go:embed lua/collecting.lua
	collectingSource string

	collectedScript = redis.NewScript(collectingSource)
)

// Collecting marks the keys of a task that collects them, so that no other task of this Redis collects one of them until
// ended is called, or until limit. It reports false, and leaves no mark, if another task does so already or Redis does not
// answer. A mark is no lock: it only saves keys from being idle.
func (e *Engine) Collecting(ctx context.Context, all []string, limit time.Duration) (ended func(context.Context), ok bool) {
	name, marks := rand.Text(), make([]*redis.BoolCmd, len(all))
	_, err := e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, key := range all {
			marks[i] = pipe.SetNX(ctx, e.names.collecting(key), name, limit)
		}
		return nil
	})
	ok = err == nil
	for _, mark := range marks {
		ok = ok && mark.Val()
	}
	ended = func(ctx context.Context) {
		calls := make([]pipeline.ScriptCall, len(all))
		for i, key := range all {
			calls[i] = pipeline.ScriptCall{Script: collectedScript, Keys: []string{e.names.collecting(key)}, Args: []any{name}}
		}
		e.pipeline(ctx, calls) // those that remain end by themselves
	}
	if !ok {
		ended(ctx)
		return nil, false
	}
	return ended, true
}
