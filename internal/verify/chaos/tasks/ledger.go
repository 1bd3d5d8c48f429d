package tasks

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Ledger is the resource that the tasks work on: a revision for each key, and which tasks have had their effect, on a Redis that nothing
// happens to. What a handler reads when it comes and what it writes in the end are two steps, so two handlers at once lose an update.
type Ledger struct {
	Redis *redis.Client
	// Checks says that it refuses those that come with a token below that of another one, and a second effect of a task.
	Checks bool
}

// ErrFenced reports that the ledger has refused a step.
var ErrFenced = errors.New("tasks: the ledger has seen a larger token")

// The names of the ledger, beside those of a key.
const (
	effectsName  = "effects"  // how many each task has had
	runsName     = "runs"     // how many handlers have begun, of each task
	insideName   = "inside"   // the run that has come to a key last, and has not left it
	countsName   = "counts"   // runs that have succeeded, were repeats, were refused
	meetingsName = "meetings" // of holders
)

var names = []string{effectsName, runsName, insideName, countsName}

// KEYS  1 token   2 revision   3 log of the effects   4 effects   5 runs   6 inside   7 counts
// ARGV  1 token   2 '1' when it checks   3 key   4 task   5 run
var (
	claimScript = redis.NewScript(`
redis.call('HINCRBY', KEYS[5], ARGV[4], 1)
if ARGV[2] == '1' then
  if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
    redis.call('HINCRBY', KEYS[7], 'refused', 1)
    return redis.error_reply('FENCED')
  end
  redis.call('SET', KEYS[1], ARGV[1])
end
redis.call('HSET', KEYS[6], ARGV[3], ARGV[5])
local known = ARGV[2] == '1' and redis.call('HEXISTS', KEYS[4], ARGV[4]) or 0
if known == 1 then
  redis.call('HINCRBY', KEYS[7], 'repeats', 1)
  redis.call('HINCRBY', KEYS[7], 'succeeded', 1)
end
return {tonumber(redis.call('GET', KEYS[2]) or '0'), known}
`)
	// ARGV 6 is the revision.
	commitScript = redis.NewScript(`
if ARGV[2] == '1' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('HINCRBY', KEYS[7], 'refused', 1)
  return redis.error_reply('FENCED')
end
redis.call('SET', KEYS[2], ARGV[6])
redis.call('RPUSH', KEYS[3], ARGV[4] .. ' ' .. ARGV[1])
redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
redis.call('HINCRBY', KEYS[7], 'succeeded', 1)
return 1
`)
	// It returns the run that has come to the key since: empty if there is none, "gone" if it has left, too.
	leaveScript = redis.NewScript(`
local inside = redis.call('HGET', KEYS[6], ARGV[3])
if inside == ARGV[5] then
  redis.call('HDEL', KEYS[6], ARGV[3])
  return ''
end
return inside or 'gone'
`)
)

// Run is a run of a handler.
type Run struct {
	Key, Task, Name string
	Token           int64
}

func (l Ledger) call(ctx context.Context, script *redis.Script, r Run, args ...any) *redis.Cmd {
	checks := "0"
	if l.Checks {
		checks = "1"
	}
	args = append([]any{r.Token, checks, r.Key, r.Task, r.Name}, args...)
	return script.Run(ctx, l.Redis, append([]string{"token:" + r.Key, "revision:" + r.Key, logName(r.Key)}, names...), args...)
}

func logName(key string) string { return "log:" + key }

func refused(err error) error {
	if err != nil && strings.Contains(err.Error(), "FENCED") {
		return ErrFenced
	}
	return err
}

// Claim returns the revision of the key, and whether the task has had its effect.
func (l Ledger) Claim(ctx context.Context, r Run) (revision int64, known bool, err error) {
	got, err := l.call(ctx, claimScript, r).Int64Slice()
	if err != nil {
		return 0, false, refused(err)
	}
	return got[0], got[1] == 1, nil
}

// Commit writes the next revision: the effect of the task.
func (l Ledger) Commit(ctx context.Context, r Run, revision int64) error {
	return refused(l.call(ctx, commitScript, r, revision).Err())
}

// Leave returns the run that has come to the key since this one did: empty if there is none, "gone" if it has left, too.
func (l Ledger) Leave(ctx context.Context, r Run) (met string, err error) {
	return l.call(ctx, leaveScript, r).Text()
}

// Met notes that another run has come while this one held the key, as far as it knew.
func (l Ledger) Met(ctx context.Context, m Meeting) error {
	return l.Redis.RPush(ctx, meetingsName, m).Err()
}

// Done returns how many tasks have had their effects.
func (l Ledger) Done(ctx context.Context) (int, error) {
	n, err := l.Redis.HLen(ctx, effectsName).Result()
	return int(n), err
}
