package preflight_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/preflight"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

var both = preflight.Needs{Queues: []string{"default", "audit"}, Locks: true}

func check(t *testing.T, client redis.UniversalClient, needs preflight.Needs) preflight.Report {
	t.Helper()
	r, err := preflight.MissingRules(t.Context(), client, needs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryMissingRuleIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, tc := range map[string]struct {
		needs   preflight.Needs
		rules   []string
		missing string
		hints   string
	}{
		"all":           {both, []string{"~*", "&*", "+@all"}, "", ""},
		"as advised":    {both, []string{"~asynq:*", "~railtoken:*", "&asynq:*", "&railtoken:*", "+@all", "-@dangerous", "+info"}, "", ""},
		"no channels":   {both, []string{"~*", "+@all"}, "", "&asynq:* &railtoken:*"},
		"asynq's alone": {both, []string{"~asynq:*", "&asynq:*", "+@all"}, "~railtoken:*", "&railtoken:*"},
		"one queue":     {both, []string{"~asynq:{default}*", "~railtoken:*", "&*", "+@all"}, "~asynq:*", ""},
		"no lists":      {both, []string{"~*", "&*", "+@all", "-lpush", "-zadd", "-publish"}, "+lpush +zadd", "+publish"},
		"no scripts":    {both, []string{"~*", "&*", "+@all", "-@scripting"}, "+eval +evalsha", ""},
		"no history":    {both, []string{"~asynq:*", "~railtoken:[^h]*", "&*", "+@all"}, "~railtoken:*", ""},
		"no collecting": {both, []string{"~asynq:*", "~railtoken:[^c]*", "&*", "+@all"}, "~railtoken:*", ""},
		"no owed wakes": {both, []string{"~asynq:*", "~railtoken:[^p]*", "~railtoken:parked", "~railtoken:preflight:*", "&*", "+@all"}, "~railtoken:*", ""},
		"no notices":    {preflight.Needs{Queues: both.Queues, Lanes: true}, []string{"~*", "&asynq:*", "&railtoken:supersede", "+@all"}, "", "&railtoken:*"},
		"all kinds":     {both, []string{"~asynq:*", "+@all", "-set"}, "~railtoken:* +set", "&asynq:* &railtoken:*"},
		"locks alone": {
			preflight.Needs{Locks: true},
			[]string{"~railtoken:lock:*", "~railtoken:lock-store", "~railtoken:preflight:*", "&railtoken:lock:*", "&railtoken:deposed", "+get", "+set", "+del", "+exists", "+pexpire", "+pttl", "+time", "+eval", "+evalsha", "+publish", "+subscribe"},
			"", "",
		},
		"locks without INFO": {preflight.Needs{Locks: true, Info: true}, []string{"~*", "&*", "+@all", "-info"}, "+info", ""},
		"locks of another program": {
			preflight.Needs{Locks: true, RedisKeys: []string{"app:" + preflight.Key + ":lock", "{app:" + preflight.Key + ":lock}:fence"}},
			[]string{"~railtoken:*", "&railtoken:*", "+@all"},
			"~app:*:lock ~{app:*:lock}:fence", "&app:*:lock",
		},
	} {
		client := server.Client(t, server.User(t, "worker", tc.rules...))
		r := check(t, client, tc.needs)
		if got := strings.Join(r.Missing, " "); got != tc.missing {
			t.Errorf("%s: missing %q, want %q", name, got, tc.missing)
		}
		if got := strings.Join(r.Hints, " "); got != tc.hints {
			t.Errorf("%s: hints %q, want %q", name, got, tc.hints)
		}
		if keys := server.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("%s: the check leaves %q behind", name, keys)
		}
	}
}

func TestWhatAServerLacksIsNamed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		renamed []string
		lacks   []string
	}{
		"nothing":     {nil, nil},
		"two of them": {[]string{"LPOS", "ZRANDMEMBER"}, []string{"the command LPOS", "the command ZRANDMEMBER"}},
		"scripts":     {[]string{"EVAL", "EVALSHA"}, []string{"Lua scripts as asynq and railtoken send them (ERR unknown command 'eval'", "the command EVALSHA"}},
		"channels":    {[]string{"PUBLISH"}, nil}, // they only make it quicker
	} {
		var args []string
		for _, command := range tc.renamed {
			args = append(args, "--rename-command", command, "")
		}
		client := redistest.Start(t, args...).Client(t)
		r := check(t, client, both)
		if !slices.EqualFunc(r.Lacks, tc.lacks, strings.HasPrefix) || len(r.Missing) > 0 {
			t.Errorf("%s: lacks %q and rules %q; want %q", name, r.Lacks, r.Missing, tc.lacks)
		}
		err := preflight.Check(t.Context(), client, both, slog.New(slog.DiscardHandler))
		if (err != nil) != (len(tc.lacks) > 0) || err != nil && !strings.Contains(err.Error(), preflight.LacksRemedy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAServerThatNobodyTestsIsNamedInTheLog(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	var log strings.Builder
	check := func() string {
		log.Reset()
		if err := preflight.Check(t.Context(), client, both, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Error(err)
		}
		return log.String()
	}
	if text := check(); text != "" {
		t.Errorf("a Redis: %s", text)
	}
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			c.SetVal("dragonfly_version:df-v1.40.1\r\n" + c.Val())
		}
		return err
	}))
	if text := check(); !strings.Contains(text, "not tested with this server") || !strings.Contains(text, "Dragonfly df-v1.40.1") {
		t.Errorf("a Dragonfly: %s", text)
	}
}

func TestAKeyThatMayNotBeDeletedExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := check(t, server.Client(t, server.User(t, "worker", "~*", "&*", "+@all", "-del")), both)
	if !slices.Equal(r.Missing, []string{"+del"}) {
		t.Errorf("missing %q", r.Missing)
	}
	client := server.Client(t)
	for _, key := range client.Keys(t.Context(), "*").Val() {
		if ttl := client.PTTL(t.Context(), key).Val(); ttl == -1 {
			t.Errorf("%s is there for ever", key)
		}
	}
}

func TestEveryMasterOfAClusterIsAsked(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	var user func(*redis.Options)
	for i, node := range cluster.Nodes() {
		rules := []string{"~asynq:*", "~railtoken:*", "&asynq:*", "&railtoken:*", "+@all", "-@dangerous", "+info", "+cluster"}
		if i == 1 {
			rules = append(rules, "-hset", "resetchannels")
		}
		user = node.User(t, "worker", rules...)
	}
	client := cluster.Client(t, func(o *redis.ClusterOptions) {
		var one redis.Options
		user(&one)
		o.Username, o.Password = one.Username, one.Password
	})
	r := check(t, client, both)
	if !slices.Equal(r.Missing, []string{"+hset"}) || !slices.Equal(r.Hints, []string{"&asynq:*", "&railtoken:*"}) {
		t.Errorf("missing %q, hints %q", r.Missing, r.Hints)
	}
}

func TestAServerThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	server.Kill()
	if r, err := preflight.MissingRules(t.Context(), client, both); err == nil || len(r.Missing) > 0 {
		t.Errorf("report %v, error %v", r, err)
	}
}

func TestAFakeRedisAllowsAll(t *testing.T) {
	t.Parallel()
	_, client := redistest.Virtual(t)
	if r := check(t, client, both); len(r.Missing)+len(r.Hints) > 0 {
		t.Errorf("report %v", r)
	}
}

// A command that a script learns must be asked about too. Without it the check would accept a user with whom every task
// fails.
func TestCommandsOfAllScriptsAreAsked(t *testing.T) {
	t.Parallel()
	asked := preflight.Commands(preflight.Needs{Queues: []string{"default"}, Locks: true, Info: true})
	call := regexp.MustCompile(`calls?\('([A-Z]+)'`)
	found := 0
	for _, dir := range []string{"../../locking/lua", "../../internal/line/lua", "../../internal/broker/lua", "../../internal/broker/intake/lua", "../../internal/lockwire/lua", "../../items/lua", "../../internal/restartguard/lua", "../../internal/holdings/lua"} {
		scripts, err := filepath.Glob(filepath.Join(dir, "*.lua"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("scripts in %s: %q, %v", dir, scripts, err)
		}
		for _, script := range scripts {
			source, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range call.FindAllStringSubmatch(string(source), -1) {
				found++
				if name := strings.ToLower(m[1]); !slices.Contains(asked, name) {
					t.Errorf("%s calls %s, which is not asked about", script, name)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d calls found", found)
	}
}
