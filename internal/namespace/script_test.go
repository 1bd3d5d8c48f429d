package namespace_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// inside returns a client in the namespace, and one that is in none.
func inside(t *testing.T, name string) (in, out *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	out = server.Client(t)
	client, made, err := namespace.Client(out, namespace.Namespace{Name: name, Tasks: true})
	if err != nil || !made {
		t.Fatal(made, err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client.(*redis.Client), out //nolint:forcetypeassert // as it was given
}

func TestScriptsSeeNamesWithoutThePrefix(t *testing.T) {
	t.Parallel()
	in, out := inside(t, "n")
	ctx := t.Context()
	reply, err := redis.NewScript(`
		redis.call("SET", KEYS[1], ARGV[1])
		redis.call('RPUSH', ARGV[2] .. 'list', 'asynq:{q}:t:1', 'n:x')
		redis.call('MSET', 'a', 1, 'b', 2)
		redis.call('RENAME', 'b', 'c')
		redis.call('ZADD', 'z1', 1, 'm')
		redis.call('ZUNIONSTORE', 'z', 2, 'z1', 'z2')
		local call = redis.pcall
		local failed = call('INCR', 'z')
		return {KEYS[1], redis.call('GET', KEYS[1]), redis.call('MEMORY', 'USAGE', 'a') > 0, type(failed.err),
			redis.call('LRANGE', 'list', 0, -1), redis.call('DEL', 'a', 'none', 'z'), redis.call('TIME')[1] ~= nil, redis.sha1hex('')}`,
	).Run(ctx, in, []string{"asynq:{q}:k"}, "asynq:{q}:payload", "").Slice()
	if err != nil {
		t.Fatal(err)
	}
	if reply[0] != "asynq:{q}:k" || reply[1] != "asynq:{q}:payload" || reply[3] != "string" || reply[5] != int64(2) {
		t.Errorf("the script has %v", reply)
	}
	for _, name := range out.Keys(ctx, "*").Val() {
		if !strings.HasPrefix(name, "n:") {
			t.Errorf("it has written %q", name)
		}
	}
	if got := out.Get(ctx, "n:asynq:{q}:k").Val(); got != "asynq:{q}:payload" {
		t.Errorf("the value is %q", got)
	}
	if got := out.LRange(ctx, "n:list", 0, -1).Val(); len(got) != 2 || got[0] != "asynq:{q}:t:1" || got[1] != "n:x" {
		t.Errorf("the payloads are %q", got)
	}
}

// Another program has sent the same script to the same Redis.
func TestAScriptOfAnotherProgramIsNotRun(t *testing.T) {
	t.Parallel()
	in, out := inside(t, "n")
	script := redis.NewScript(`return redis.call('SET', 'name', ARGV[1])`)
	if err := script.Run(t.Context(), out, nil, "out").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := script.Run(t.Context(), in, nil, "in").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := out.Get(t.Context(), "name").Val(), out.Get(t.Context(), "n:name").Val(); a != "out" || b != "in" {
		t.Errorf("the names have %q and %q", a, b)
	}
	sum, err := in.ScriptLoad(t.Context(), "return 7").Result()
	if err != nil || in.EvalSha(t.Context(), sum, nil).Val() != int64(7) || !in.ScriptExists(t.Context(), sum, script.Hash()).Val()[1] {
		t.Errorf("a script that was loaded: %s, %v", sum, err)
	}
}

func TestAScriptWithAnUnknownCommandFails(t *testing.T) {
	t.Parallel()
	in, out := inside(t, "n")
	for _, call := range []string{"'SORT', 'a'", "'FLUSHALL'", "'S' .. 'ET', 'a', 1", "'BITFIELDS', 'a'"} {
		err := in.Eval(t.Context(), "return redis.call("+call+")", nil).Err()
		if err == nil || !strings.Contains(err.Error(), "not known in a namespace") {
			t.Errorf("%s gives %v", call, err)
		}
	}
	if n := out.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("there are %d keys", n)
	}
}

func TestSubscriptionsTransactionsAndScans(t *testing.T) {
	t.Parallel()
	in, out := inside(t, "n")
	ctx := t.Context()
	sub := in.PSubscribe(ctx, "asynq:c*")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if err := sub.Subscribe(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if m, err := sub.Receive(ctx); err != nil || m.(*redis.Subscription).Channel != "other" {
		t.Fatal(m, err)
	}
	if n := out.Publish(ctx, "asynq:cancel", "x").Val(); n != 0 {
		t.Errorf("%d hear what is not for them", n)
	}
	in.Publish(ctx, "asynq:cancel", "n:x")
	if m, err := sub.ReceiveMessage(ctx); err != nil || m.Channel != "asynq:cancel" || m.Payload != "n:x" || m.Pattern != "asynq:c*" {
		t.Errorf("the message is %+v, %v", m, err)
	}
	out.Set(ctx, "x", 0, 0)
	err := in.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "x", 1, 0)
			p.Set(ctx, "y", 2, 0)
			return nil
		})
		return err
	}, "x")
	if err != nil || out.Get(ctx, "n:x").Val() != "1" {
		t.Error(err)
	}
	var page []string
	for it := in.Scan(ctx, 0, "", 1).Iterator(); it.Next(ctx); {
		page = append(page, it.Val())
	}
	if len(page) != 2 || len(page[0]) != 1 {
		t.Errorf("there are %q", page)
	}
	if err := in.FlushDB(ctx).Err(); err == nil || !strings.Contains(err.Error(), "not known in a railtoken namespace") || out.DBSize(ctx).Val() != 3 {
		t.Errorf("it is flushed: %v", err)
	}
}

var calls = regexp.MustCompile(`call\(["'](\w+)["']`)

// TestEveryCommandOfAsynqsAndOurScriptsIsKnown reads the sources.
func TestEveryCommandOfAsynqsAndOurScriptsIsKnown(t *testing.T) {
	t.Parallel()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, pattern := range []string{strings.TrimSpace(string(dir)) + "/internal/rdb/*.go", "../*/lua/*.lua", "../broker/intake/lua/*.lua", "../../*/lua/*.lua"} {
		for _, text := range sources(t, pattern) {
			for _, call := range calls.FindAllStringSubmatch(text, -1) {
				found[call[1]] = true
			}
		}
	}
	if len(found) < 30 {
		t.Errorf("only %d commands are found", len(found))
	}
	in, _ := inside(t, "n")
	for command := range found {
		err := in.Eval(t.Context(), "return redis.call('"+command+"', '1', '1', 'x', 'x', 'x', 'x', 'x', 'x', 'x')", nil).Err()
		if err != nil && strings.Contains(err.Error(), "namespace") {
			t.Errorf("%s: %v", command, err)
		}
	}
}
