package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqconn"
)

const (
	// movingFirst is when a wake is tried again for the first time while a slot of the Cluster moves: see follow.
	movingFirst = 5 * time.Millisecond
	// settleLimit is how long an operator's call is tried meanwhile.
	settleLimit = 5 * time.Second
)

// moving reports whether a node has refused a script of several keys because their slot is on its way to another node.
// The script has not begun.
func moving(err error) bool { return asynqconn.Moving(err) }

// runSettled runs a script of several keys of one slot, and again for a while as long as the slot moves.
func (e *Engine) runSettled(ctx context.Context, script *redis.Script, keys []string, args ...any) (string, error) {
	reply, err := asynqconn.OnceSettled(ctx, settleLimit,
		func() *redis.Cmd { return script.Run(ctx, e.client, keys, args...) }).Text()
	if moving(err) {
		err = fmt.Errorf("the slot of its queue moves to another node of the cluster: try again later: %w", err)
	}
	return reply, err
}
