package crashtest_test

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// effect is the step in which a handler writes what it is there for, in a database of its own.
const effect = "effect"

// What a worker asks when nothing is to be done, and what it tells of itself. They are no steps, and the server is spared them: they are nearly
// all that a worker asks.
const (
	idleFetch   = "idle fetch"
	idleForward = "idle forward"
	idleChatter = "idle chatter"
)

// asynqSteps are asynq's scripts, and the one that is sent in place of its own fetch, by the keys that they name.
var asynqSteps = map[string]string{
	"fetch":                                 "asynq/fetch",
	"active,lease,t,processed,processed":    "asynq/done",
	"active,lease,pending,t":                "asynq/requeue",
	"scheduled,pending":                     "asynq/forward",
	"retry,pending":                         "asynq/forward",
	"t,pending":                             "asynq/enqueue",
	"t,scheduled":                           "asynq/schedule",
	"t":                                     "asynq/info",
	"t,active,lease,retry,processed,failed": "asynq/retry",
	"t,active,lease,archived,processed":     "asynq/archive",
}

// ownScripts are our own scripts: "park", "acquire" and so on, as their files are called.
var ownScripts = sync.OnceValue(func() map[string]string {
	scripts := map[string]string{}
	for _, dir := range []string{"../../line/lua", "../../../locking/lua", "../../broker/lua", "../../broker/intake/lua"} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.lua"))
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			scripts[strings.TrimSuffix(filepath.Base(file), ".lua")] = string(source)
		}
	}
	return scripts
})

// ownStep is the end of those that are one of these functions.
var ownStep = regexp.MustCompile(`return (?:announced\()?(\w+)\(KEYS[^()]*unpack\(ARGV\)\)\)?$`)

// ownScript names one of our scripts by its end: it may have functions that it shares with others before it. It returns "" for one of asynq's.
func ownScript(source string) (name string) {
	if end := ownStep.FindStringSubmatch(source); end != nil {
		return end[1]
	}
	for each, end := range ownScripts() {
		if strings.HasSuffix(source, end) && len(end) > len(ownScripts()[name]) {
			name = each
		}
	}
	return name
}

// sources are the scripts that any run has sent, by their SHA-1, so that the next run's server knows them from the start, as one that
// has been in use does. names are their names, "" for one of asynq's.
var sources, names sync.Map

// learn keeps the source of a script that is sent.
func learn(cmd redis.Cmder) {
	args := cmd.Args()
	if cmd.Name() != "eval" || len(args) < 2 {
		return
	}
	source := args[1].(string)
	hash := sha(source)
	if _, known := sources.Load(hash); known {
		return
	}
	names.Store(hash, ownScript(source))
	sources.Store(hash, source)
}

func sha(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // the name that Redis gives to a script
	return hex.EncodeToString(sum[:])
}

// teach has a server know all scripts that are known, without loading them: it would parse each of them in each run.
func teach(m *miniredis.Miniredis) {
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "EVALSHA" || len(args) == 0 {
			return false
		}
		source, known := sources.Load(args[0])
		if known {
			m.Server().Dispatch(c, append([]string{"EVAL", source.(string)}, args[1:]...))
		}
		return known
	})
}

// stepOf names what a command is to a worker; "" for what a worker tells of itself, and for looks that leave everything as it was.
func stepOf(m *miniredis.Miniredis, cmd redis.Cmder) string {
	args := cmd.Args()
	switch cmd.Name() {
	case "evalsha", "eval":
	case "ping":
		return ""
	default:
		if key := fmt.Sprint(args[1]); strings.HasSuffix(key, "}:lease") || key == "asynq:servers" || key == "asynq:workers" {
			return "" // asynq's heartbeat
		}
		words := []string{cmd.Name()}
		for _, arg := range args[1:] {
			if word, ok := arg.(string); ok && (strings.HasPrefix(word, "railtoken:") || word == "asynq:queues") {
				word, _, _ = strings.Cut(word, ":{")
				words = append(words, word)
			}
		}
		return strings.Join(words, " ")
	}
	n, err := strconv.Atoi(fmt.Sprint(args[2]))
	if err != nil || len(args) < 3+n {
		return "script ?"
	}
	name := fmt.Sprint(args[1])
	if cmd.Name() == "eval" {
		name = sha(name)
	}
	switch own, known := names.Load(name); {
	case !known:
		return "" // the server does not know it either, and it is sent again with its source
	case own == "sequence_join" && args[3+n+2] == 0: // it does not ask who is first
		return "join"
	case own == "wake" && args[3+n+1] != "": // the only entry
		return "wake task"
	case own != "" && own != "fetch": // which is asynq's, as far as anybody can tell from outside
		return own.(string)
	}
	return asynqStep(m, args[3:3+n], args[len(args)-1])
}

// isLook reports whether a step leaves everything as it was.
func isLook(step string) bool {
	command, _, _ := strings.Cut(strings.TrimPrefix(step, ofProducer), " ")
	return slices.Contains([]string{"asynq/info", "exists", "get", "hexists", "hget", "hmget", "sismember", "zcard", "zrange", "zscore", "check", "ended", "head", "look", "paused", "scores"}, command)
}

// asynqStep names one of asynq's scripts, by its keys and its last argument: that of a fetch tells how many tasks it admits, if
// there are none.
func asynqStep(m *miniredis.Miniredis, keys []any, last any) string {
	var parts []string
	for _, k := range keys {
		if strings.HasPrefix(fmt.Sprint(k), "railtoken:lock:{") { // released with the acknowledgement
			continue
		}
		if strings.HasPrefix(fmt.Sprint(k), "asynq:servers:{") {
			return idleChatter
		}
		rest, ok := strings.CutPrefix(fmt.Sprint(k), "asynq:{")
		_, part, cut := strings.Cut(rest, "}:")
		if !ok || !cut {
			return "" // what a server tells of itself
		}
		part, _, _ = strings.Cut(part, ":")
		parts = append(parts, part)
	}
	signature := strings.Join(parts, ",")
	const queue, mark = "pending,paused,active,lease,", "recalled"
	if queues, ok := strings.CutSuffix(signature, mark); ok && queues == strings.Repeat(queue, len(parts)/4) {
		signature = "fetch"
		if fmt.Sprint(last) == "0" && !slices.ContainsFunc(keys, func(k any) bool { return strings.HasSuffix(fmt.Sprint(k), "}:pending") && m.Exists(fmt.Sprint(k)) }) {
			return idleFetch
		}
	}
	switch signature {
	case "aggregation_sets": // there are none
		return idleChatter
	case "lease", "completed":
		return "" // the regular looks of the recoverer and the janitor
	case "scheduled,pending", "retry,pending":
		if !due(m, fmt.Sprint(keys[0])) {
			return idleForward
		}
	}
	for prefix, step := range asynqSteps {
		if signature == prefix || strings.Count(prefix, ",") > 3 && strings.HasPrefix(signature, prefix) {
			return step
		}
	}
	return "asynq/" + signature
}

// due reports whether a delayed task's time has come.
func due(m *miniredis.Miniredis, key string) bool {
	ids, _ := m.ZMembers(key) // no key, no tasks
	for _, id := range ids {
		if score, err := m.ZScore(key, id); err == nil && int64(score) <= time.Now().Unix() {
			return true
		}
	}
	return false
}
