package chaos

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Ledger is the resource that the locks protect: a revision for each key, on a Redis that nothing happens to. What a client reads when it
// comes and what it writes in the end are two steps, so two clients at once lose an update.
type Ledger struct {
	Redis  *redis.Client
	Fenced bool // it refuses those that come with a token below that of another one
}

// ErrFenced reports that the ledger has refused a step.
var ErrFenced = errors.New("chaos: the ledger has seen a larger token")

// KEYS  1 token   2 revision   3 log of the accepted tokens
// ARGV  1 token   2 '1' when fenced   3 revision
var (
	claimScript = redis.NewScript(`
if ARGV[2] == '1' then
  if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
    return redis.error_reply('FENCED')
  end
  redis.call('SET', KEYS[1], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[2]) or '0')
`)
	commitScript = redis.NewScript(`
if ARGV[2] == '1' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED')
end
redis.call('SET', KEYS[2], ARGV[3])
redis.call('RPUSH', KEYS[3], ARGV[1])
return 1
`)
)

func (l Ledger) run(ctx context.Context, script *redis.Script, key string, args ...any) (int64, error) {
	fenced := "0"
	if l.Fenced {
		fenced = "1"
	}
	args = append([]any{args[0], fenced}, args[1:]...)
	n, err := script.Run(ctx, l.Redis, []string{"token:" + key, "revision:" + key, "log:" + key}, args...).Int64()
	if err != nil && strings.Contains(err.Error(), "FENCED") {
		return 0, ErrFenced
	}
	return n, err
}

// Claim returns the revision of a key.
func (l Ledger) Claim(ctx context.Context, key string, token int64) (revision int64, err error) {
	return l.run(ctx, claimScript, key, token)
}

// Commit writes the next revision.
func (l Ledger) Commit(ctx context.Context, key string, token, revision int64) error {
	_, err := l.run(ctx, commitScript, key, token, revision)
	return err
}

// Audit counts the updates that the ledger has accepted, those of them that were lost, and those that came after a larger token.
func (l Ledger) Audit(ctx context.Context, keys []string) (accepted, lost, disordered int, err error) {
	for _, key := range keys {
		revision, err := l.Redis.Get(ctx, "revision:"+key).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, 0, 0, err
		}
		var tokens []int64
		if err := l.Redis.LRange(ctx, "log:"+key, 0, -1).ScanSlice(&tokens); err != nil {
			return 0, 0, 0, err
		}
		accepted += len(tokens)
		lost += len(tokens) - revision
		for i := 1; i < len(tokens); i++ {
			if tokens[i] < tokens[i-1] {
				disordered++
			}
		}
	}
	return accepted, lost, disordered, nil
}
