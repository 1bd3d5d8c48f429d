package line

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
)

const (
	// movingFirst is the first pause before a wake is retried while a slot of the Cluster moves: see followUp.
	movingFirst = 5 * time.Millisecond
	// settleLimit limits the retries of Drop, Cancel and Replay while the slot moves.
	settleLimit = 5 * time.Second
)

// moving reports whether a node has refused a script because the slot of its keys is moving to another node. The script
// has not begun.
func moving(err error) bool { return broker.Moving(err) }

// runSettled runs a script of several keys of one slot, and retries it while the slot moves.
func (e *Engine) runSettled(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	reply := broker.OnceSettled(ctx, settleLimit, func() *redis.Cmd { return script.Run(ctx, e.client, keys, args...) })
	if err := reply.Err(); moving(err) {
		reply.SetErr(fmt.Errorf("the slot of its queue moves to another node of the cluster: try again later: %w", err))
	}
	return reply
}
