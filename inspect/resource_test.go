package inspect_test

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// resource is what a key protects: a record that only the holder with the largest fencing token may write.
type resource struct{ client redis.UniversalClient }

var (
	claimScript = redis.NewScript(`
local token = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < token then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return 1`)
	writeScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
redis.call('HINCRBY', KEYS[1], 'by:' .. ARGV[1], 1)
return 1`)
)

// claim raises the token, as a handler does before it reads, and as Floor does.
func (r resource) claim(ctx context.Context, token int64) (bool, error) {
	n, err := claimScript.Run(ctx, r.client, []string{"resource"}, token).Int()
	return n == 1, err
}

// write writes once, unless another token was claimed since.
func (r resource) write(ctx context.Context, token int64) (landed bool, err error) {
	n, err := writeScript.Run(ctx, r.client, []string{"resource"}, token).Int()
	return n == 1, err
}

// writes returns how many writes with a token have landed.
func (r resource) writes(ctx context.Context, token int64) (int, error) {
	n, err := r.client.HGet(ctx, "resource", "by:"+strconv.FormatInt(token, 10)).Int()
	if err == redis.Nil { //nolint:errorlint // as go-redis documents it
		return 0, nil
	}
	return n, err
}
