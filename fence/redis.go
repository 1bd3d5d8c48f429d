package fence

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/internal/rediswire"
)

//go:embed lua/claim.lua
var claimScript string

// redisPrefix begins the names of tokens in Redis.
const redisPrefix = "railtoken:fence:"

// Redis guards data in Redis. The token is kept beside the data, in the same cluster slot, so that one script checks
// the token and writes. A Redis that fails over to a replica can lose the last tokens along with the last data.
//
// The token of key K beside a data key with the hash tag D, or without a tag and named D, is the string
// railtoken:fence:{D}:K. Like the data that it guards, it does not expire: each pair of a key and a hash tag
// permanently costs one small string. If you delete data for good, delete its token days later, because an earlier
// holder that was stopped for longer would find no larger token. A Redis user with ACL rules needs ~railtoken:fence:*
// besides the data keys, and the commands EVAL, GET and SET. A client of attach.Namespaced puts its prefix before both names.
//
// A Redis is a value without state, and safe for concurrent use.
type Redis struct {
	// Eval runs a Lua script and returns its reply, or the server's error. With go-redis:
	//
	//	func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	//		return client.Eval(ctx, script, keys, args...).Result()
	//	}
	Eval func(ctx context.Context, script string, keys []string, args ...any) (any, error)
}

// Claim raises the token beside a data key to the caller's. Call it before the data is read. The same token may be
// claimed again. All data keys with the same hash tag share the token.
//
// The error matches [ErrFenced] if there is a larger token.
func (r Redis) Claim(ctx context.Context, t Token, key string) error {
	_, err := r.Run(ctx, t, "return 1", []string{key})
	return err
}

// Run runs a Lua script unless there is a larger token beside the data, and returns its reply. Like Claim, it raises the
// token to the caller's in the same step. The script uses KEYS and ARGV as if it were run alone; the names of its Lua
// variables must not begin with fence_. All keys must be in one cluster slot, as always with scripts; the token is beside
// the first. The script must return something, because clients report the lack of a reply as an error.
//
// The error matches [ErrFenced] if there is a larger token; the script has not run then.
func (r Redis) Run(ctx context.Context, t Token, script string, data []string, args ...any) (any, error) {
	if r.Eval == nil {
		return nil, invalid("set Redis.Eval")
	}
	if err := t.validate(); err != nil {
		return nil, err
	}
	if len(data) == 0 || data[0] == "" {
		return nil, invalid("the script has no data key, beside which the token could be")
	}
	name, err := redisName(t, data[0])
	if err != nil {
		return nil, err
	}
	reply, err := r.Eval(ctx, claimScript+script, append(append([]string{}, data...), name), append(append([]any{}, args...), t.N)...)
	if err == nil {
		return reply, nil
	}
	if seen, ok := refusedBy(err); ok {
		return nil, &FencedError{Key: t.Key, Token: t.N, Seen: seen}
	}
	return nil, fmt.Errorf("fence: script: %w", err)
}

// redisName returns the name of a token in the slot of a data key.
func redisName(t Token, data string) (string, error) {
	tag := rediswire.Tag(data)
	if strings.Contains(tag, "}") {
		return "", invalid("the data key %q has a closing brace but no hash tag: no other key can be in its slot", data)
	}
	return redisPrefix + "{" + tag + "}:" + storedName(t.Key), nil
}

var fencedReply = regexp.MustCompile(`FENCED (\d+)`)

// refusedBy returns the larger token in the error of a script.
func refusedBy(err error) (seen int64, ok bool) {
	m := fencedReply.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	seen, parseErr := strconv.ParseInt(m[1], 10, 64)
	return seen, parseErr == nil
}
