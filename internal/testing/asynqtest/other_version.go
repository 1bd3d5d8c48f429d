package asynqtest

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// OtherVersion makes asynq look like a version whose scripts are not known: give it to asynq in place of the client in
// it.
type OtherVersion struct {
	redis.UniversalClient
	// Changed reports whether a script of asynq, known by its SHA-1 and its keys or by its keys alone, differs in that
	// version.
	Changed func(sum string, keys []string) bool
}

// EvalSha answers that Redis does not know a changed script, so that asynq sends its text.
func (c OtherVersion) EvalSha(ctx context.Context, sum string, keys []string, args ...any) *redis.Cmd {
	if !c.Changed(sum, keys) {
		return c.UniversalClient.EvalSha(ctx, sum, keys, args...)
	}
	cmd := redis.NewCmd(ctx, "evalsha", sum)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

// Eval sends a changed script as the other version would.
func (c OtherVersion) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if c.Changed("", keys) {
		script += "\n-- of another version"
		sum := sha1.Sum([]byte(script)) //nolint:gosec // see above
		cmd := c.UniversalClient.EvalSha(ctx, hex.EncodeToString(sum[:]), keys, args...)
		if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			return cmd
		}
	}
	return c.UniversalClient.Eval(ctx, script, keys, args...)
}
