package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// batchCall is a call that the batch script can make.
type batchCall struct {
	name string // of the business key
	code byte
	args []any
}

func (c batchCall) keys() []string {
	lock := lockwire.LockKey(c.name)
	return []string{lock, lock + ":fence", lock + ":notify"}
}

// source is the call's own script.
func (c batchCall) source() string {
	switch c.code {
	case 'A':
		return releaseSource
	case 'N':
		return renewSource
	}
	return acquireSource
}

// oneByOne makes each call by its own script. A reply is an error if the call has failed.
func oneByOne(ctx context.Context, client *redis.Client, calls []batchCall) []any {
	replies := make([]any, len(calls))
	for i, c := range calls {
		reply, err := client.Eval(ctx, c.source(), c.keys(), c.args...).Result()
		if replies[i] = reply; err != nil {
			replies[i] = err
		}
	}
	return replies
}

// asBatch makes the calls by the batch script.
func asBatch(ctx context.Context, client *redis.Client, calls []batchCall) (replies []any, err error) {
	var keys []string
	var codes []byte
	var args []any
	for _, c := range calls {
		keys, codes, args = append(keys, c.keys()...), append(codes, c.code+byte(len(c.args))), append(args, c.args...)
	}
	reply, err := client.Eval(ctx, batchSource, keys, append([]any{string(codes)}, args...)...).Result()
	if err != nil {
		return nil, err
	}
	replies = reply.([]any)
	for i, r := range replies {
		if r == nil {
			replies[i] = redis.Nil
		}
	}
	if len(replies) > len(calls) {
		failures := replies[len(calls)].([]any)
		for i := 0; i < len(failures); i += 2 {
			replies[failures[i].(int64)-1] = errors.New(failures[i+1].(string))
		}
		replies = replies[:len(calls)]
	}
	return replies, nil
}

// anyCalls draws calls of a few owners on a few keys.
func anyCalls(t *rapid.T) []batchCall {
	calls := make([]batchCall, rapid.IntRange(1, 12).Draw(t, "calls"))
	for i := range calls {
		c := batchCall{name: rapid.SampledFrom([]string{"k1", "k2"}).Draw(t, "key"), code: 'A'}
		owner := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner")
		switch rapid.SampledFrom([]string{"acquire", "renew", "release"}).Draw(t, "script") {
		case "release":
			c.args = []any{owner}
			if rapid.Bool().Draw(t, "with a token") {
				c.args = append(c.args, rapid.SampledFrom([]int64{1, 50, 1 << 40, 1 << 52}).Draw(t, "token"))
			}
		case "renew":
			c.code = 'N'
			c.args = []any{
				owner, rapid.SampledFrom([]int{30_000, 90_000}).Draw(t,
					"TTL"), rapid.SampledFrom([]int{400_000, 900_000}).Draw(t, "FenceTTL"),
				rapid.SampledFrom([]int64{1, 50, 1 << 40, 1 << 52}).Draw(t, "token"),
			}
		default:
			c.code = 'a'
			all := []any{
				owner, rapid.SampledFrom([]int{30_000, 90_000}).Draw(t,
					"TTL"), rapid.SampledFrom([]int{400_000, 900_000}).Draw(t, "FenceTTL"),
				rapid.SampledFrom([]int64{0, 50, 1 << 40, 1 << 52, -1, -50, -1 << 52}).Draw(t, "proposal"),
				rapid.SampledFrom([]int{0, 20_000, 200_000}).Draw(t, "notify"), rapid.SampledFrom([]int{1, 16}).Draw(t,
					"block"),
			}
			c.args = all[:rapid.SampledFrom([]int{3, 4, 5, 6, 6, 6}).Draw(t, "arguments")]
		}
		calls[i] = c
	}
	return calls
}

// anyState draws what the servers hold before, as commands.
func anyState(t *rapid.T) (commands [][]any) {
	put := func(what, key string, values ...string) {
		value := rapid.SampledFrom(append([]string{"nothing", "nothing", "nothing", "a list"}, values...)).Draw(t, what)
		switch value {
		case "nothing":
		case "a list":
			commands = append(commands, []any{"RPUSH", key, "x"})
		default:
			command := []any{"SET", key, value}
			if rapid.Bool().Draw(t, what+" ends") {
				command = append(command, "PX", 100_000)
			}
			commands = append(commands, command)
		}
	}
	for _, name := range []string{"k1", "k2"} {
		keys := batchCall{name: name}.keys()
		put("lock", keys[0], "a", "b", "of another program")
		put("counter", keys[1], "7", "40", fmt.Sprint(1<<51), fmt.Sprint(1<<51), fmt.Sprint(1<<51), "no number", "")
		put("mark", keys[2], "1", "1", "1")
	}
	return commands
}

// dump returns all that a server holds: type, value, and time left in whole minutes or so.
func dump(t *rapid.T, client *redis.Client) map[string][]any {
	ctx := context.Background()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil || len(keys) > 6 {
		t.Fatalf("keys %v, %v; want those that were named", keys, err)
	}
	pipe := client.Pipeline()
	kinds, values, left := make([]*redis.StatusCmd, len(keys)), make([]*redis.StringCmd,
		len(keys)), make([]*redis.DurationCmd, len(keys))
	for i, key := range keys {
		kinds[i], values[i], left[i] = pipe.Type(ctx, key), pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // a list has no value
	all := map[string][]any{}
	for i, key := range keys {
		value := any(values[i].Val())
		if number, err := values[i].Int64(); err == nil {
			value = number
		}
		all[key] = []any{kinds[i].Val(), value, left[i].Val().Milliseconds()}
	}
	return all
}

// comparison is how much numbers that come from the clock may differ (us).
type comparison struct{ apart int64 }

// alike reports whether two replies say the same. Times left may differ by some seconds.
func (s comparison) alike(a, b any) bool {
	switch x := a.(type) {
	case error:
		y, ok := b.(error)
		return ok && firstWord(x) == firstWord(y) && rediswire.IsTransient(x.Error()) == rediswire.IsTransient(y.Error())
	case []any:
		y, ok := b.([]any)
		return ok && len(x) == len(y) && s.allAlike(x, y)
	case string: // a counter in the reply to an acquisition that was refused
		y, ok := b.(string)
		var m, n int64
		if _, err := fmt.Sscan(x, &m); err == nil && ok {
			if _, err := fmt.Sscan(y, &n); err == nil {
				return s.alike(m, n)
			}
		}
		return x == y
	case int64:
		y, ok := b.(int64)
		const clock = 1_600_000_000_000_000
		distance := int64(math.Abs(float64(x - y)))
		switch {
		case !ok:
			return false
		case x > clock && x < 1<<51:
			return distance <= s.apart
		case x > 10_000 && x < 1_000_000: // ms left
			return distance < 9_000
		default:
			return x == y
		}
	default:
		return reflect.DeepEqual(a, b)
	}
}

func (s comparison) allAlike(a, b []any) bool {
	for i := range a {
		if !s.alike(a[i], b[i]) {
			return false
		}
	}
	return true
}

func firstWord(err error) string {
	word, _, _ := strings.Cut(rediswire.Command(err.Error()), " ")
	return word
}

// compareBatch makes random calls on two servers, one by one and as a batch, and compares all that can be seen of them.
// Tokens of the clock may differ by as much as apart says.
func compareBatch(t *testing.T, alone, together *redis.Client, apart time.Duration) {
	Compute(t)
	same := comparison{apart.Microseconds()}
	ctx := t.Context()
	clients := []*redis.Client{alone, together}
	notices := make([]<-chan *redis.Message, 2)
	for i, client := range clients {
		watch := client.PSubscribe(ctx, "*")
		t.Cleanup(func() { _ = watch.Close() })
		if _, err := watch.Receive(ctx); err != nil {
			t.Fatal(err)
		}
		// it would dial anew on a machine that is busy
		notices[i] = watch.Channel(redis.WithChannelHealthCheckInterval(0))
	}
	check := func(t *rapid.T) {
		state, calls := anyState(t), anyCalls(t)
		for _, client := range clients {
			pipe := client.Pipeline()
			pipe.FlushAll(ctx)
			for _, command := range state {
				pipe.Do(ctx, command...)
			}
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got, err := asBatch(ctx, together, calls)
		if err != nil || len(got) != len(calls) {
			t.Fatalf("the batch: %v, %v", got, err)
		}
		for i, want := range oneByOne(ctx, alone, calls) {
			if c := calls[i]; !same.alike(want, got[i]) {
				t.Fatalf("call %d, %c %v on %s: %v in the batch, %v alone", i, c.code, c.args, c.name, got[i], want)
			}
		}
		want, have := dump(t, alone), dump(t, together)
		for key := range want {
			if !same.alike(want[key], have[key]) || len(want) != len(have) {
				t.Fatalf("%s: %v after the batch, %v otherwise", key, have[key], want[key])
			}
		}
		var told [2][]string
		for i, client := range clients {
			if err := client.Publish(ctx, "end", "1").Err(); err != nil {
				t.Fatal(err)
			}
			for m := range notices[i] {
				if m.Channel == "end" {
					break
				}
				told[i] = append(told[i], m.Channel)
			}
		}
		if !slices.Equal(told[0], told[1]) {
			t.Fatalf("notices %v of the batch, %v otherwise", told[1], told[0])
		}
	}
	for range batchRounds {
		rapid.Check(t, check)
	}
}

func TestABatchDoesWhatItsCallsDoAlone(t *testing.T) {
	t.Parallel()
	compareBatch(t, redistest.Start(t).Client(t), redistest.Start(t).Client(t), time.Minute)
}

// A fake Redis has a clock that stands still, so that tokens must be the same.
func TestABatchEqualsItsCallsOnAFake(t *testing.T) {
	t.Parallel()
	a, alone := redistest.Virtual(t)
	b, together := redistest.Virtual(t)
	now := time.Now()
	a.SetTime(now)
	b.SetTime(now)
	compareBatch(t, alone, together, 0)
}

func TestABatchReleasesWithoutMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	take := func(key, owner string) batchCall { return batchCall{key, 'a', []any{owner, 30_000, 60_000}} }
	renew := func(key, owner string) batchCall { return batchCall{key, 'N', []any{owner, 90_000, 60_000, 1 << 52}} }
	leave := func(key, owner string) batchCall { return batchCall{key, 'A', []any{owner, 1 << 52}} }
	if _, err := asBatch(t.Context(), client, []batchCall{take("mine", "a"), take("kept", "a")}); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	replies, err := asBatch(t.Context(), client, []batchCall{
		take("x", "a"), leave("x", "a"), take("mine", "a"), leave("mine", "a"), leave("mine", "b"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if refusal, ok := replies[i].(error); !ok || !rediswire.IsTransient(refusal.Error()) {
			t.Errorf("call %d has reply %v, want that there is no memory", i, replies[i])
		}
	}
	renewed, err := asBatch(t.Context(), client, []batchCall{take("y", "a"), renew("kept", "a")})
	if err != nil {
		t.Fatal(err)
	}
	if left := client.PTTL(t.Context(), lockwire.LockKey("kept")).Val(); renewed[1] != int64(0) || left < 60*time.Second {
		t.Errorf("reply %v to a renewal, after which the lock is kept for %v", renewed[1], left)
	}
	if replies[1] != int64(0) || replies[3] != int64(0) || replies[4] != int64(0) {
		t.Errorf("replies %v, want that all is released", replies)
	}
	if n := client.Exists(t.Context(), lockwire.LockKey("x"), lockwire.LockKey("mine")).Val(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// Otherwise the client would not see that it has to look for another server.
func TestABatchOnAReplicaFailsWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	if err := client.Do(t.Context(), "REPLICAOF", "192.0.2.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, calls := range [][]batchCall{
		{{"x", 'A', []any{"a"}}, {"x", 'a', []any{"a", 30_000, 60_000}}},
		{{"x", 'a', []any{"a", 30_000, 60_000}}},
	} {
		replies, err := asBatch(t.Context(), client, calls)
		if !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("replies %v, error %v; want READONLY", replies, err)
		}
	}
}
