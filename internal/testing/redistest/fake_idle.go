package redistest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// answerIdle returns a hook that does for an idle server of asynq what asynq's scripts would: it fetches from an empty
// queue, looks for due tasks, expired leases and results in sets that have none, and writes that a server without active
// tasks is there. miniredis builds a new Lua state for each script, which costs twenty times as much, and in virtual time
// an idle server sends little else.
func answerIdle(m *miniredis.Miniredis) server.Hook {
	db := m.DB(0) // without the clock, which has no say in whether asynq's lists and sets are there
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "EVALSHA" || len(args) < 4 {
			return false
		}
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || len(args) < 3+n || !strings.HasPrefix(args[2], "asynq:") {
			return false
		}
		keys, argv := args[2:2+n], args[2+n:]
		switch {
		case n == 2 && len(argv) == 2 && strings.HasPrefix(keys[0], "asynq:servers:{") && strings.HasPrefix(keys[1], "asynq:workers:{"):
			return beat(c, db, keys, argv)
		case n == 1 && len(argv) == 3 && ofQueue(keys, "completed") && !due(db, keys[0], argv[0]):
			c.WriteInt(0)
		case n == 1 && len(argv) == 2 && ofQueue(keys, "lease") && !due(db, keys[0], argv[0]):
			c.WriteLen(0)
		case n == 4 && ofQueue(keys, "pending", "paused", "active", "lease") && !db.Exists(keys[0]):
			c.WriteNull()
		case n%4 == 1 && n > 1 && argv[len(argv)-1] == "0" && empty(db, keys): // it admits no task
			c.WriteLen(0)
		case n == 2 && (ofQueue(keys, "scheduled", "pending") || ofQueue(keys, "retry", "pending")) && !due(db, keys[0], argv[0]):
			c.WriteInt(0)
		default:
			return false
		}
		return true
	}
}

// empty reports whether a script is railtoken's own fetch, of several queues and with a mark, and finds no task.
func empty(db *miniredis.RedisDB, keys []string) bool {
	for ; len(keys) > 1; keys = keys[4:] {
		if !ofQueue(keys[:4], "pending", "paused", "active", "lease") || db.Exists(keys[0]) {
			return false
		}
	}
	return strings.Contains(keys[0], "}:recalled:") && !db.Exists(keys[0])
}

// beat writes that a server is there, and that none of its tasks is active. It reports whether it has.
func beat(c *server.Peer, db *miniredis.RedisDB, keys, argv []string) bool {
	ttl, err := strconv.Atoi(argv[0])
	if err != nil || ttl <= 0 || db.Set(keys[0], argv[1]) != nil {
		return false
	}
	db.SetTTL(keys[0], time.Duration(ttl)*time.Second)
	db.Del(keys[1])
	c.WriteOK()
	return true
}

// ofQueue reports whether keys are these of one of asynq's queues.
func ofQueue(keys []string, names ...string) bool {
	return slices.EqualFunc(keys, names, func(key, name string) bool {
		return strings.HasPrefix(key, "asynq:{") && strings.HasSuffix(key, "}:"+name)
	})
}

// due reports whether the time of a task in one of asynq's sets has come.
func due(db *miniredis.RedisDB, key, now string) bool {
	until, err := strconv.ParseFloat(now, 64)
	if err != nil {
		return true
	}
	ids, err := db.ZMembers(key) // by their scores
	if err != nil || len(ids) == 0 {
		return !errors.Is(err, miniredis.ErrKeyNotFound)
	}
	first, err := db.ZScore(key, ids[0])
	return err != nil || first <= until
}
