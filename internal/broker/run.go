package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// EvalSha runs a script by its SHA-1.
func (c *Conn) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, "", sum, keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.EvalSha(ctx, sum, keys, args...) })
}

// Eval runs a script by its text. go-redis calls it when Redis does not know the script, after EvalSha.
func (c *Conn) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.run(ctx, script, sumOf(script), keys, args,
		func(ctx context.Context) *redis.Cmd { return c.UniversalClient.Eval(ctx, script, keys, args...) })
}

// run treats a script as its kind requires. text is that of the script if go-redis sends it, and empty otherwise.
func (c *Conn) run(ctx context.Context, text, sum string, keys []string, args []any,
	send func(context.Context) *redis.Cmd,
) *redis.Cmd {
	kind, known := KindOf(sum, keys)
	if kind != Other && !known {
		c.warnForeign(ctx, sum)
	}
	switch kind {
	case Ack:
		return c.acknowledge(ctx, text, sum, keys, args, send)
	case Fetch:
		return c.paced(ctx, known, keys, send)
	case Recover:
		if c.lanes == nil {
			return c.recover(ctx, sum, keys, send)
		}
		return goesOn(ctx, sum, c.recover(ctx, sum, keys, func(ctx context.Context) *redis.Cmd {
			return c.overLanes(ctx, text, sum, keys, args, send)
		}))
	case Stop:
		c.pulse.over()
		c.Silence()
		c.drain()
		return send(ctx)
	case Beat:
		cmd := c.beat(ctx, sum, keys, send)
		c.pulse.called(cmd.Err())
		return cmd
	default:
		if name := scripts[sum]; c.lanes != nil && (name == forwardScript || name == janitorScript) {
			cmd := c.overLanes(ctx, text, sum, keys, args, send)
			if name == forwardScript {
				return goesOn(ctx, sum, cmd)
			}
			return cmd
		}
		if scripts[sum] == forwardScript && c.look.forwardsNothing(ctx) {
			cmd := redis.NewCmd(ctx, "evalsha", sum)
			cmd.SetVal(int64(0))
			return cmd
		}
		cmd := send(ctx)
		if scripts[sum] == forwardScript && cmd.Err() == nil {
			c.look.forwarded()
		}
		c.pulse.called(cmd.Err())
		c.missed(cmd.Err())
		return cmd
	}
}

// paced fetches a task, and holds asynq while there is none.
func (c *Conn) paced(ctx context.Context, known bool, keys []string, send func(context.Context) *redis.Cmd) *redis.Cmd {
	if c.pacer.round.rests() {
		return answer(ctx, "", redis.Nil)
	}
	cmd, more := c.fetched(ctx, known, keys, send)
	c.failures.pause(ctx, cmd.Err())
	// asynq sleeps after a fetch that has found nothing: it gets the next one at once if a task may have come meanwhile.
	for again, began := true, time.Now(); again && !more && c.pacer.fetched(ctx, cmd.Err()); {
		c.look.fetched(false)
		cmd, more = c.fetched(ctx, known, keys, send)
		again = c.pacer.followed(cmd.Err()) && time.Since(began) <= c.pacer.interval
		c.failures.pause(ctx, cmd.Err())
	}
	c.pacer.round.answered(cmd.Err(), c.ours(known) && c.intake.AllAtOnce() && !more)
	return cmd
}

// ours reports whether tasks are fetched by our own script, for a fetch of asynq that is recognised or not.
func (c *Conn) ours(known bool) bool { return known && c.tasks != nil && !c.foreign.Load() }

// fetched fetches a task, by asynq's script when our own cannot be used. more reports that others may follow at once.
func (c *Conn) fetched(ctx context.Context, known bool, keys []string,
	send func(context.Context) *redis.Cmd,
) (cmd *redis.Cmd, more bool) {
	c.pulse.fetching()
	defer func() {
		c.pulse.fetched(cmd.Err())
		c.missed(cmd.Err())
	}()
	if c.ready != nil {
		if err := c.ready(ctx); err != nil {
			cmd = redis.NewCmd(ctx, "evalsha")
			cmd.SetErr(err)
			return cmd, false
		}
	}
	if c.foreign.Load() && !c.plain {
		cmd = redis.NewCmd(ctx, "evalsha")
		cmd.SetErr(fmt.Errorf("%w: no task is fetched", ErrAsynq))
		return cmd, false
	}
	if c.ours(known) {
		return c.fetch(ctx, keys)
	}
	return send(ctx), false
}

// missed notes the error of a call, if Redis has not carried it out. While the slot of a queue moves, Redis is there.
func (c *Conn) missed(err error) {
	if err != nil && !errors.Is(err, redis.Nil) && !rediswire.Says(err, rediswire.NoScript) && !Moving(err) {
		c.recovery.failed(time.Now(), c.pulse.read().Answered)
	}
}

// recover has asynq's recoverer look for tasks whose leases have ended.
func (c *Conn) recover(ctx context.Context, sum string, keys []string, send func(context.Context) *redis.Cmd) *redis.Cmd {
	cmd := send(ctx)
	c.pulse.called(cmd.Err())
	if cmd.Err() == nil && len(keys) > 0 && c.recovery.withholds(keys[0], time.Now()) {
		cmd = redis.NewCmd(ctx, "evalsha", sum)
		cmd.SetVal([]any{})
	}
	return cmd
}

// warnForeign logs once that asynq is not recognised.
func (c *Conn) warnForeign(ctx context.Context, sum string) {
	if c.foreign.Swap(true) {
		return
	}
	if !c.plain {
		c.log.ErrorContext(ctx, "asynq has sent a script that railtoken does not recognise; no more tasks are fetched: use asynq "+
			Versions+", or set AllowUnknownAsynq", "script", sum)
		return
	}
	c.log.WarnContext(ctx,
		"asynq's scripts are not those of the version that this build of railtoken supports; tasks in conflict are not "+
			"parked, and wait for their own timers: use that version of asynq", "script", sum)
}
