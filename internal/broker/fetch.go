package broker

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
)

// parkingMost limits a fetch that only takes tasks which are parked. asynq can stop only between two fetches, and a fetch
// that does not end is taken for one that is stuck.
const parkingMost = 20 * time.Millisecond

// landing is the end of a fetch.
type landing struct {
	empty bool // there was no task
	more  bool // see Intake.Fetch
	err   error
}

// depart begins a fetch, unless the server is idle and a look finds nothing. asynq's call does not end it.
func (c *Conn) depart(ctx context.Context, queue string) <-chan landing {
	landed := make(chan landing, 1)
	ctx = context.WithoutCancel(ctx)
	go func() {
		var end landing
		defer func() { landed <- end }()
		if end.empty = c.look.inVain(ctx); !end.empty {
			end.more, end.err = c.intake.Fetch(ctx, queue)
			end.empty = end.err == nil && !end.more
		}
	}()
	return landed
}

// late returns when a fetch that is under way holds up the next one no longer: never, unless that asks another place.
func (c *Conn) late() <-chan time.Time {
	if !c.intake.TakesTurns() {
		return nil
	}
	return time.After(intake.HoldMost)
}

// fetch gives asynq the next task that comes into memory: by a fetch, which it begins unless one is under way, with an
// acknowledgement, or from a run that hands its locks off. The fetch goes on then. more reports that there may be others, because
// those that came are being parked, or were.
func (c *Conn) fetch(ctx context.Context, keys []string) (cmd *redis.Cmd, more bool) {
	c.fetching.Lock()
	defer c.fetching.Unlock()
	c.lanes.start()
	cmd = redis.NewCmd(ctx, "evalsha")
	queue, _ := asynqwire.QueueOf(keys[0], "pending")
	more = true
	late := c.late()
	own, come := false, false // the fetch is one of this call; something has come into memory since it was sent
	for began := time.Now(); ; {
		if t, ok := c.intake.Take(); ok {
			c.look.fetched(false)
			cmd.SetVal(t.Message)
			return cmd, false
		}
		if c.flight == nil {
			if !more || time.Since(began) >= parkingMost {
				cmd.SetErr(redis.Nil)
				return cmd, more
			}
			c.flight, own, come = c.depart(ctx, queue), true, false
			late = c.late()
		}
		select {
		case <-c.intake.Arrived():
			come = true
		case <-late: // what it brings comes into memory
			c.intake.Late()
			c.flight, more = nil, true
		case end := <-c.flight:
			c.flight = nil
			if own && end.err != nil && !errors.Is(end.err, redis.Nil) {
				c.look.fetched(false)
				cmd.SetErr(end.err)
				return cmd, false
			}
			more = end.more || come || !own
			c.look.fetched(end.empty && !more) // or a look would miss what has come without locks
		}
	}
}
