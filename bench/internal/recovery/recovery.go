// Package recovery measures how soon tasks run again after a fault: a worker that was killed, a Redis that restarts, a
// network that was cut, and a master that its sentinels replace.
package recovery

import (
	"context"
	"errors"

	"github.com/railtoken/railtoken/bench/internal/measure"
)

// Group is that of both tables.
const Group = "faults"

// Measure measures all faults.
func Measure(ctx context.Context, env *measure.Env) error {
	return errors.Join(outages(ctx, env, all, contestants, normal), deaths(ctx, env))
}
