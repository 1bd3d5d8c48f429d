package redistest

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Hook is a redis.Hook that sees each command that is sent by itself.
type Hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook changes nothing.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook has the Hook see each command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// ProcessPipelineHook changes nothing.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Fail answers a command with an error.
func Fail(cmd redis.Cmder, err error) error {
	cmd.SetErr(err)
	return err
}

// Patient returns a client as [VirtualClient] does, whose calls end with their contexts.
func Patient(tb testing.TB, m *miniredis.Miniredis) *redis.Client {
	tb.Helper()
	return VirtualClient(tb, m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
}
