package worker

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// local is a configuration without a fault.
func local() Config { return Config{Redis: Redis{Addr: "127.0.0.1:6379"}} }

func TestZeroConfigWithAnAddressIsValid(t *testing.T) {
	t.Parallel()
	if err := local().Validate(); err != nil {
		t.Error(err)
	}
}

func TestEmptyAddressIsRefused(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Validate":  Config{}.Validate(),
		"New":       func() error { _, err := New(Config{}); return err }(),
		"NewClient": func() error { _, err := NewClient(Redis{}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "RAILTOKEN_REDIS_ADDR") {
			t.Errorf("%s of an empty address gives %v", name, err)
		}
	}
}

func TestValidateNamesFaultAndRemedy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault func(*Config)
		parts []string
	}{
		"two kinds":        {func(c *Config) { c.Redis.Cluster = []string{"a:1"} }, []string{"several kinds", "only one of"}},
		"master alone":     {func(c *Config) { c.Redis = Redis{Master: "m"} }, []string{"RAILTOKEN_REDIS_SENTINELS", "set both"}},
		"sentinels alone":  {func(c *Config) { c.Redis = Redis{Sentinels: []string{"a:1"}} }, []string{"RAILTOKEN_REDIS_MASTER", "set both"}},
		"no port":          {func(c *Config) { c.Redis.Addr = "localhost" }, []string{"RAILTOKEN_REDIS_ADDR", `"localhost"`, "host:port"}},
		"empty port":       {func(c *Config) { c.Redis.Addr = "localhost:" }, []string{"RAILTOKEN_REDIS_ADDR", "host:port"}},
		"space in host":    {func(c *Config) { c.Redis.Addr = " localhost:1" }, []string{"RAILTOKEN_REDIS_ADDR", "host:port"}},
		"faulty sentinel":  {func(c *Config) { c.Redis = Redis{Master: "m", Sentinels: []string{"a:1", "b"}} }, []string{"RAILTOKEN_REDIS_SENTINELS", `"b"`}},
		"nodes for tasks":  {func(c *Config) { c.Redis = Redis{Nodes: []string{"a:1", "b:1", "c:1"}} }, []string{"Redis.Nodes", "LockRedis.Nodes"}},
		"two nodes":        {func(c *Config) { c.LockRedis.Nodes = []string{"a:1", "b:1"} }, []string{"RAILTOKEN_LOCK_NODES", "at least 3"}},
		"nodes and addr":   {func(c *Config) { c.LockRedis = Redis{Addr: "a:1", Nodes: []string{"a:1", "b:1", "c:1"}} }, []string{"several kinds", "LOCK_NODES"}},
		"same node twice":  {func(c *Config) { c.LockRedis.Nodes = []string{"a:1", "b:1", "A:1"} }, []string{"a:1", "twice"}},
		"faulty node":      {func(c *Config) { c.Redis = Redis{Cluster: []string{"a", "b:1"}} }, []string{"RAILTOKEN_REDIS_CLUSTER", `"a"`}},
		"database -1":      {func(c *Config) { c.Redis.DB = -1 }, []string{"RAILTOKEN_REDIS_DB", "-1", "from 0"}},
		"database on it":   {func(c *Config) { c.Redis = Redis{Cluster: []string{"a:1"}, DB: 2} }, []string{"RAILTOKEN_REDIS_DB", "2", "cluster"}},
		"blank queue":      {func(c *Config) { c.Queues = map[string]int{" ": 1} }, []string{"blank name"}},
		"weight 0":         {func(c *Config) { c.Queues = map[string]int{"audit": 0} }, []string{`"audit"`, "weight 0", "from 1"}},
		"weight too large": {func(c *Config) { c.Queues = map[string]int{"audit": math.MaxInt} }, []string{`"audit"`, "to 1000"}},
		"concurrency":      {func(c *Config) { c.Concurrency = -1 }, []string{"Concurrency is -1", "at least 1"}},
		"check interval":   {func(c *Config) { c.TaskCheckInterval = 1 }, []string{"TaskCheckInterval is 1ns", "at least 1ms"}},
		"delayed interval": {func(c *Config) { c.DelayedTaskCheckInterval = -1 }, []string{"DelayedTaskCheckInterval is -1ns"}},
		"shutdown timeout": {func(c *Config) { c.ShutdownTimeout = -time.Second }, []string{"ShutdownTimeout is -1s"}},
		"keys":             {func(c *Config) { c.MaxKeys = -1 }, []string{"MaxKeys is -1"}},
		"key size":         {func(c *Config) { c.MaxKeySize = -1 }, []string{"MaxKeySize is -1"}},
		"TTL":              {func(c *Config) { c.LockTTL = time.Millisecond }, []string{"1ms"}},
		"hold":             {func(c *Config) { c.MaxHold = -1 }, []string{"-1ns"}},
		"strategy":         {func(c *Config) { c.Strategy = middleware.Wait{Attempts: -1} }, []string{"Wait.Attempts is -1"}},
		"lanes of locks":   {func(c *Config) { c.LockRedis.Lanes = 64 }, []string{"LockRedis has Lanes", "set those of Redis"}},
		"locks on a URL":   {func(c *Config) { c.LockRedis.Addr = "redis://h:1" }, []string{"RAILTOKEN_LOCK_REDIS_ADDR is a URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := local()
			tc.fault(&cfg)
			wantParts(t, cfg.Validate(), tc.parts...)
			w, err := New(cfg)
			if w != nil || err == nil || err.Error() != cfg.Validate().Error() {
				t.Errorf("New gives %v, %v; want what Validate says", w, err)
			}
		})
	}
}

func TestSettingsOfALockRedisWithoutAnAddressAreRefused(t *testing.T) {
	t.Parallel()
	for _, at := range []Redis{{DB: 3}, {Password: "p"}, {SentinelPassword: "p"}, {Username: "u"}, {TLS: true}} {
		cfg := local()
		cfg.LockRedis = at
		wantParts(t, cfg.Validate(), "no address of Redis", "RAILTOKEN_LOCK_REDIS_ADDR")
	}
}

func TestDefaultsAreThoseDocumented(t *testing.T) {
	t.Parallel()
	c := local().withDefaults()
	got := fmt.Sprintln(c.Queues, c.StrictPriority, c.Concurrency, c.SlotBudget, c.TaskCheckInterval, c.DelayedTaskCheckInterval, c.ShutdownTimeout)
	if want := "map[default:1] false 10 5 50ms 1s 8s\n"; got != want {
		t.Errorf("defaults are %s; want %s", got, want)
	}
	if c.Logger != slog.Default() {
		t.Error("without a Logger it is not slog.Default")
	}
	for concurrency, want := range map[int]int{1: 1, 2: 1, 3: 1, 20: 10} {
		if got := (Config{Concurrency: concurrency}).withDefaults().SlotBudget; got != want {
			t.Errorf("with a concurrency of %d, %d tasks may wait in slots; want %d", concurrency, got, want)
		}
	}
	if got := (Config{SlotBudget: -1}).withDefaults().SlotBudget; got != -1 {
		t.Errorf("a SlotBudget of -1 becomes %d", got)
	}
}

// TestEachVariableIsDocumented looks for the names of the variables in the comments of the fields. The variables of the
// second Redis are documented by the first one's, and by a name with a star.
func TestEachVariableIsDocumented(t *testing.T) {
	t.Parallel()
	comments := map[string]string{} // struct -> the comments of its fields
	for _, file := range []string{"config.go", "redis.go"} {
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					comments[spec.Name.Name] += field.Doc.Text() + "\n"
				}
			}
			return false
		})
	}
	documented := func(in, name string) bool {
		return slices.Contains(regexp.MustCompile(`[A-Z_]+\*?`).FindAllString(comments[in], -1), name)
	}
	for _, name := range EnvNames() {
		ok := documented("Config", name) || documented("Redis", name)
		switch {
		case strings.HasPrefix(name, "RAILTOKEN_REDIS_"):
			ok = documented("Redis", name) && documented("Config", "RAILTOKEN_REDIS_*")
		case strings.HasPrefix(name, "RAILTOKEN_LOCK_REDIS_"):
			ok = documented("Redis", strings.Replace(name, "LOCK_", "", 1)) && documented("Config", "RAILTOKEN_LOCK_REDIS_*")
		}
		if !ok {
			t.Errorf("%s is in no comment of a field", name)
		}
	}
	for in, text := range comments {
		for _, name := range regexp.MustCompile(`RAILTOKEN_[A-Z_]+\b`).FindAllString(text, -1) {
			if !strings.HasSuffix(name, "_") && !slices.Contains(EnvNames(), name) {
				t.Errorf("the comments of %s name %s, which is no variable", in, name)
			}
		}
	}
}
