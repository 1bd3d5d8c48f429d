// Package otherasynq makes asynq look, for tests, like a version whose scripts are not known.
package otherasynq

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqconn"
)

// Client is the connection of an asynq whose scripts of some kinds are others: give it to asynq in place of the client in it.
type Client struct {
	redis.UniversalClient
	Changed []asynqconn.Kind
}

// EvalSha knows no script that is another one, so that asynq sends its text.
func (c Client) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	if kind, _ := asynqconn.KindOf(sum, keys); !slices.Contains(c.Changed, kind) {
		return c.UniversalClient.EvalSha(ctx, sum, keys, args...)
	}
	cmd := redis.NewCmd(ctx, "evalsha", sum)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

// Eval sends a script as the other asynq would.
func (c Client) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if kind, _ := asynqconn.KindOf("", keys); slices.Contains(c.Changed, kind) {
		script += "\n-- of another version"
		sum := sha1.Sum([]byte(script)) //nolint:gosec // see above
		if cmd := c.UniversalClient.EvalSha(ctx, hex.EncodeToString(sum[:]), keys, args...); !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			return cmd
		}
	}
	return c.UniversalClient.Eval(ctx, script, keys, args...)
}
