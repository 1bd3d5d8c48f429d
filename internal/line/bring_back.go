package line

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

var (
	//go:embed lua/bring_back.lua
	bringBackSource string

	bringBackScript = redis.NewScript(composed(bringBackSource))
)

const (
	// LostAfter is how long after the end of asynq's lease an active task counts as lost: its worker extends the lease
	// each 5 s for 30 s.
	LostAfter = 2 * time.Second
	// LeftAfter is how long after the end of asynq's lease a lost task is left to asynq's recoverer. The recoverer lists
	// the leases that ended 30 s ago, and then acts on each: a task that was brought back in between would be archived
	// or retried in the middle of its next run. The difference of 2 s is for the clocks, because the recoverer goes by
	// the clock of its own machine.
	LeftAfter = 28 * time.Second
	// countsKept is how long asynq keeps the counts of a day.
	countsKept = 90 * 24 * time.Hour
)

// BringBack makes a task whose worker has died run again at once, and reports whether it did. It returns false when the
// task is not active, and when asynq's lease on it ended less than [LostAfter] or more than [LeftAfter] ago. asynq itself
// would bring the task back one or two minutes later, and one without a lease never. The task must not be running any
// more: call BringBack while you hold the lock of its key.
//
// begun says that the task had begun to work. Then it has failed, as asynq counts it too: it has used up a retry, and
// is archived when none is left. Otherwise nothing is counted.
//
// It makes two calls to Redis.
func (e *Engine) BringBack(ctx context.Context, t Task, begun bool) (bool, error) {
	back, err := e.bringBack(ctx, t, begun)
	if err != nil {
		return false, fmt.Errorf("delayqueue: bring back task %s: %w", t, err)
	}
	return back, nil
}

func (e *Engine) bringBack(ctx context.Context, t Task, begun bool) (bool, error) {
	message, err := e.client.HGet(ctx, t.Hash(), asynqwire.MessageField).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now, after, outcome := time.Now(), message, ""
	if begun {
		retried := varintOf(message, retriedField)
		if outcome = "pending"; retried >= varintOf(message, retryField) {
			outcome = "archived"
		} else {
			retried++
		}
		after = failed(message, retried, now.Unix(), asynq.ErrLeaseExpired.Error())
	}
	n, err := e.sendBack(ctx, t, message, after, outcome, "", "", 0)
	back := n == 1
	if back && outcome != "archived" && e.woken != nil {
		e.woken(t)
	}
	return back, err
}

// sendBack runs bring_back.lua, and returns what that does. Its last arguments are those of the script.
func (e *Engine) sendBack(ctx context.Context, t Task, message, after, outcome, judge, run string, deaths int) (int, error) {
	now := time.Now()
	day := ":" + now.UTC().Format(time.DateOnly)
	keys := []string{t.Hash()}
	for _, name := range []string{
		"active", "lease", "pending", "archived", "processed" + day, "failed" + day,
		"processed", "failed", "retry",
	} {
		keys = append(keys, t.Prefix()+name)
	}
	return bringBackScript.Run(ctx, e.client, keys, t.ID, message, after, int(LostAfter.Seconds()), int(LeftAfter.Seconds()),
		now.UnixNano(), outcome, now.Add(countsKept).Unix(), judge, run, deaths).Int()
}
