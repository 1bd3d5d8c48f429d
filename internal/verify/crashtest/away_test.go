package crashtest_test

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// away is a redis.Hook on a connection to a server that cannot be reached for a while.
type away struct{ from, until time.Time }

// errAway is what the client is told meanwhile.
var errAway = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (a away) is() bool { return !time.Now().Before(a.from) && time.Now().Before(a.until) }

func (a away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.is() {
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (a away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !a.is() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errAway)
		}
		return errAway
	}
}
