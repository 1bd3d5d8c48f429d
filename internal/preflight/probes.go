package preflight

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// scratchPrefix is the prefix of the key on which commands are tried.
const scratchPrefix = "railtoken:preflight:"

// cancelChannel is the channel on which asynq tells workers to cancel a task.
const cancelChannel = asynqwire.CancelChannel

// lockCommands and taskCommands are the commands of all scripts, and those that asynq and package delayqueue send by
// themselves, with the arguments after the key. The key contains a string that is not a number, so commands for other
// types fail without writing anything.
var (
	lockCommands = map[string][]any{"get": {}, "exists": {}, "pexpire": {1000}, "pttl": {}}
	taskCommands = map[string][]any{
		"mget": {}, "expire": {1}, "expireat": {time.Now().AddDate(0, 0, 1).Unix()}, "incr": {}, "incrby": {1},
		"hset": {"f", "v"}, "hget": {"f"}, "hmget": {"f"}, "hdel": {"f"},
		"lpush": {"v"}, "rpush": {"v"}, "lrem": {0, "v"}, "lrange": {0, 0}, "llen": {}, "lpos": {"v"},
		"sadd": {"v"}, "srem": {"v"}, "smembers": {}, "sismember": {"v"},
		"zadd": {1, "v"}, "zrem": {"v"}, "zcard": {}, "zrange": {0, 0}, "zrank": {"v"}, "zscore": {"v"},
		"zrangebyscore": {0, 0},
		"zrandmember":   {}, "zremrangebyscore": {0, 0}, "zremrangebyrank": {0, 0},
	}
)

// probesOf returns the probes for a server. Rules for keys are tried by a script that does nothing with the key, and
// commands by themselves.
func probesOf(needs Needs) (probes []probe) {
	for _, name := range namesOf(needs) {
		probes = append(probes, probe{args: []any{"eval", "return 0", 1, name}, rule: ruleOf("~", name)})
	}
	scratch := scratchPrefix + "{" + rand.Text() + "}"
	add := func(command string, args ...any) {
		probes = append(probes, probe{args: append([]any{command}, args...), rule: ruleOf("~", scratch)})
	}
	add("set", scratch, "x", "PX", 1000) // first, so that the others find a string
	add("eval", "return redis.call('GET', KEYS[1])", 1, scratch)
	// asynq's scripts, and railtoken's, find the names of tasks in lists.
	add("eval", "return redis.call('EXISTS', KEYS[1] .. ':undeclared')", 1, scratch)
	add("evalsha", strings.Repeat("0", 40), 1, scratch)
	add("time")
	for command, args := range lockCommands {
		add(command, append([]any{scratch}, args...)...)
	}
	if len(needs.Queues) > 0 {
		for command, args := range taskCommands {
			add(command, append([]any{scratch}, args...)...)
		}
		add("rpoplpush", scratch, scratch)
		add("renamenx", scratch, scratch) // which changes nothing
	}
	if needs.Info {
		add("info", "server")
	}
	add("del", scratch)
	if len(needs.Queues) > 0 {
		add("persist", scratchPrefix+rand.Text()) // not scratch: a user who may not DEL would leave it for ever
	}
	for _, channel := range channelsOf(needs) {
		if channel != cancelChannel {
			probes = append(probes, probe{args: []any{"publish", channel, ""}, rule: ruleOf("&", channel), hint: true})
		}
	}
	return probes
}

// namesOf returns one Redis key of each kind.
func namesOf(needs Needs) (names []string) {
	tag := "{" + rediswire.Encode(Key) + "}"
	for _, queue := range needs.Queues {
		names = append(names, asynqwire.Pending(queue), asynqwire.Hash(queue, rediswire.Encode(Key)))
	}
	if len(needs.Queues) > 0 {
		names = append(names, asynqwire.Queues, "railtoken:parked", "railtoken:parked:owed", "railtoken:recovery:{"+needs.Queues[0]+"}", "railtoken:waiters:"+tag, "railtoken:sequence:"+tag,
			"railtoken:collect:"+tag, holdings.Workers, holdings.Key("preflight"), holdings.HistoryKey(time.Time{}))
	}
	if needs.Locks {
		names = append(names, lockwire.StoreKey)
	}
	return append(names, lockNames(needs)...)
}

// lockNames returns the Redis keys of the lock of Key, its counter and its subscription.
func lockNames(needs Needs) (names []string) {
	if !needs.Locks {
		return nil
	}
	if len(needs.RedisKeys) > 0 {
		return needs.RedisKeys
	}
	lock := "railtoken:lock:{" + rediswire.Encode(Key) + "}"
	return []string{lock, lock + ":fence", lock + ":notify"}
}

// supersedeChannel is the channel on which tasks ask the holders of their keys to stop.
const supersedeChannel = "railtoken:supersede"

// deposedChannel is the channel on which holders learn that an operator has taken their key away.
const deposedChannel = "railtoken:deposed"

// channelsOf returns the channels that the user should be able to use: those of the lock for releases and depositions,
// that of asynq for cancellations, that of tasks that supersede others, and that
// of tasks that come into lanes.
func channelsOf(needs Needs) (channels []string) {
	if len(needs.Queues) > 0 {
		channels = append(channels, cancelChannel, supersedeChannel)
	}
	if needs.Lanes {
		channels = append(channels, lanes.ReadyChannel(0))
	}
	if names := lockNames(needs); len(names) > 0 {
		channels = append(channels, names[0])
		if strings.HasPrefix(names[0], "railtoken:") { // other names say that the user's rules are another program's, too
			channels = append(channels, deposedChannel)
		}
	}
	return channels
}

// ruleOf returns the rule for a name: for all names of asynq or railtoken, or for names that another program chose.
func ruleOf(kind, name string) string {
	for _, ours := range []string{asynqwire.Namespace, "railtoken:"} {
		if strings.HasPrefix(name, ours) {
			return kind + ours + "*"
		}
	}
	name = strings.ReplaceAll(name, rediswire.Encode(Key), "*")
	return kind + strings.ReplaceAll(name, Key, "*")
}
