package redistest

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrCrash is the error of what a process sends after its [Crash].
var ErrCrash = errors.New("redistest: the process has crashed")

// Crash is a redis.Hook of a process that ends after some commands: see After. Of a pipeline to several nodes some commands may
// arrive and others not: the first ones do, or with last the last ones.
type Crash struct {
	// Ended, unless it is nil, is called when a command does not arrive.
	Ended func()

	mu     sync.Mutex
	left   int
	last   bool
	struck bool
	split  bool
}

// After lets n more commands through, from now on.
func (c *Crash) After(n int, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.last, c.struck, c.split = n, last, false, false
}

// Struck reports whether a command has not arrived.
func (c *Crash) Struck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.struck
}

// Split reports whether some commands of a pipeline have arrived, and others not.
func (c *Crash) Split() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.split
}

// grant returns which of n commands are still sent.
func (c *Crash) grant(n int) (from, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := min(n, c.left)
	c.left -= granted
	c.split = c.split || 0 < granted && granted < n
	if granted < n {
		c.struck = true
		if c.Ended != nil {
			c.Ended()
		}
	}
	if c.last {
		return n - granted, n
	}
	return 0, granted
}

// DialHook changes nothing.
func (c *Crash) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook sends a command, or not.
func (c *Crash) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if from, to := c.grant(1); from == to {
			return Fail(cmd, ErrCrash)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook sends some commands of a pipeline, also if Ended ends its context.
func (c *Crash) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		from, to := c.grant(len(cmds))
		if from == 0 && to == len(cmds) {
			return next(ctx, cmds)
		}
		for _, lost := range append(cmds[:from:from], cmds[to:]...) {
			lost.SetErr(ErrCrash)
		}
		if from < to {
			_ = next(context.WithoutCancel(ctx), cmds[from:to])
		}
		return ErrCrash
	}
}
