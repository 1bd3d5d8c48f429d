package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/lockwire"
)

// TestNodeDoesWhatTheScriptsDo sends the same requests to a simulated node and, by the scripts of production, to a
// Redis.
func TestNodeDoesWhatTheScriptsDo(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	scripts := map[request]*redis.Script{}
	for r, source := range map[request]string{acquire: lockwire.Acquire, renew: lockwire.Renew, release: lockwire.Release} {
		scripts[r] = redis.NewScript(source)
	}
	const keys, fenceTTL = 4, 205
	rapid.Check(t, func(rt *rapid.T) {
		server.FlushAll()
		n := &node{cells: make([]cell, keys), fenceTTL: fenceTTL}
		now := second
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			// Everything ends 5 ms after a time that is looked at: Redis and miniredis differ in the very millisecond.
			if pass := rapid.SampledFrom([]int64{0, 0, 0, 10, 50, 100, 250}).Draw(rt, "ms"); pass > 0 {
				now += pass * millisecond
				server.FastForward(time.Duration(pass) * time.Millisecond)
			}
			m := message{
				request: rapid.SampledFrom([]request{acquire, acquire, renew, release}).Draw(rt, "request"),
				owner:   rapid.Uint64Range(1, 3).Draw(rt, "owner"),
				ttl:     rapid.SampledFrom([]int64{35, 95}).Draw(rt, "ttl"),
				block:   rapid.Int64Range(1, 16).Draw(rt, "block"),
			}
			chosen := rapid.SliceOfNDistinct(rapid.Uint16Range(0, keys-1), 1, maxKeys, rapid.ID).Draw(rt, "keys")
			m.keys = uint8(copy(m.key[:], chosen))
			for i := range chosen {
				m.tokens[i] = rapid.Int64Range(1, 120).Draw(rt, "token")
			}
			asked, before := m, &node{cells: slices.Clone(n.cells)}
			n.run(&m, now)
			reply, err := scripts[m.request].Run(rt.Context(), rdb, names(chosen), arguments(&asked, fenceTTL)...).Result()
			if err != nil {
				rt.Fatal(err)
			}
			if got, want := expected(&asked, &m, before, now), fmt.Sprint(reply); got != want {
				rt.Fatalf("%+v: the node says %s, the script %s", asked, got, want)
			}
			for key := range uint16(keys) {
				if got, want := inNode(n, key, now), inRedis(server, key); got != want {
					rt.Fatalf("after %+v, key %d: %s in the node, %s in Redis", asked, key, got, want)
				}
			}
		}
	})
}

// names returns the names of locks, counters and subscriptions.
func names(keys []uint16) (all []string) {
	for _, key := range keys {
		k := strconv.Itoa(int(key))
		all = append(all, "lock"+k, "counter"+k, "subscription"+k)
	}
	return all
}

func arguments(m *message, fenceTTL int64) []any {
	args := []any{m.owner}
	switch m.request {
	case acquire:
		return append(args, m.ttl, fenceTTL, m.tokens[0], 0, m.block)
	case renew:
		args = append(args, m.ttl, fenceTTL)
	}
	for _, token := range m.tokens[:m.keys] {
		args = append(args, token)
	}
	return args
}

// expected returns the reply of the node as the script would give it. The scripts tell which key is to blame, which the
// node as it was before shows.
func expected(asked, m *message, n *node, now int64) string {
	ms := n.wall(now) / 1000
	switch {
	case asked.request == acquire && m.ok && m.keys == 1:
		return fmt.Sprint(m.tokens[0])
	case asked.request == acquire && m.ok:
		return fmt.Sprint(m.tokens[:m.keys])
	case asked.request == acquire:
		for i, key := range asked.key[:asked.keys] {
			if c := n.at(key, ms); c.owner != 0 && c.owner != asked.owner {
				return fmt.Sprint([]any{0, i + 1, m.holder, c.lockUntil - ms, m.tokens[0]})
			}
		}
	case m.ok:
		return "0"
	case asked.request == renew:
		for i, key := range asked.key[:asked.keys] {
			if c := n.at(key, ms); c.owner != asked.owner || c.counter > asked.tokens[i] {
				return fmt.Sprint(i + 1)
			}
		}
	default:
		for i, key := range asked.key[:asked.keys] {
			if c := n.at(key, ms); c.owner != asked.owner && (c.owner != 0 || c.counter > asked.tokens[i]) {
				return fmt.Sprint([]any{i + 1, 0})
			}
		}
	}
	return "nothing"
}

func inNode(n *node, key uint16, now int64) string {
	ms := n.wall(now) / 1000
	c := *n.at(key, ms)
	if c.owner == 0 {
		c.lockUntil = ms
	}
	if c.counter == 0 {
		c.counterUntil = ms
	}
	return fmt.Sprint(c.owner, c.lockUntil-ms, c.counter, c.counterUntil-ms)
}

func inRedis(server *miniredis.Miniredis, key uint16) string {
	read := func(name string) (value string, left int64) {
		if !server.Exists(name) {
			return "0", 0
		}
		value, _ = server.Get(name)
		return value, server.TTL(name).Milliseconds()
	}
	all := names([]uint16{key})
	owner, lock := read(all[0])
	counter, fence := read(all[1])
	return fmt.Sprint(owner, " ", lock, " ", counter, " ", fence)
}
