package worker

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// variables has for every variable a value and where it goes.
var variables = map[string]struct {
	value string
	field func(Config) any
	want  any
}{
	"RAILTOKEN_REDIS_ADDR":                   {" 10.0.0.1:6379 ", func(c Config) any { return c.Redis.Addr }, "10.0.0.1:6379"},
	"RAILTOKEN_REDIS_MASTER":                 {"primary", func(c Config) any { return c.Redis.Master }, "primary"},
	"RAILTOKEN_REDIS_SENTINELS":              {"a:1, b:2 ,,c:3", func(c Config) any { return c.Redis.Sentinels }, []string{"a:1", "b:2", "c:3"}},
	"RAILTOKEN_REDIS_CLUSTER":                {"d:1 ,e:2,", func(c Config) any { return c.Redis.Cluster }, []string{"d:1", "e:2"}},
	"RAILTOKEN_REDIS_USERNAME":               {"driver", func(c Config) any { return c.Redis.Username }, "driver"},
	"RAILTOKEN_REDIS_PASSWORD":               {" p ", func(c Config) any { return c.Redis.Password }, Secret(" p ")},
	"RAILTOKEN_REDIS_SENTINEL_PASSWORD":      {"sp", func(c Config) any { return c.Redis.SentinelPassword }, Secret("sp")},
	"RAILTOKEN_REDIS_DB":                     {" 3 ", func(c Config) any { return c.Redis.DB }, 3},
	"RAILTOKEN_REDIS_TLS":                    {"true", func(c Config) any { return c.Redis.TLS }, true},
	"RAILTOKEN_REDIS_PASSWORD_FILE":          {"testdata/password", func(c Config) any { return c.Redis.Password }, Secret(" from a file ")},
	"RAILTOKEN_REDIS_SENTINEL_PASSWORD_FILE": {"testdata/password", func(c Config) any { return c.Redis.SentinelPassword }, Secret(" from a file ")},
	"RAILTOKEN_REDIS_TLS_CA_FILE":            {" TLS/ca.pem ", func(c Config) any { return c.Redis.TLSConfig != nil && c.Redis.TLSConfig.RootCAs != nil }, true},
	"RAILTOKEN_REDIS_TLS_CERT_FILE":          {"TLS/cert.pem", func(c Config) any { return c.Redis.TLSConfig != nil }, true},
	"RAILTOKEN_REDIS_TLS_KEY_FILE":           {"TLS/key.pem", func(c Config) any { return c.Redis.TLSConfig != nil }, true},
	"RAILTOKEN_REDIS_TLS_SERVER_NAME": {" redis.internal ", func(c Config) any {
		return c.Redis.TLSConfig != nil && c.Redis.TLSConfig.ServerName == "redis.internal"
	}, true},

	"RAILTOKEN_LOCK_REDIS_ADDR":                   {"10.0.0.2:6379", func(c Config) any { return c.LockRedis.Addr }, "10.0.0.2:6379"},
	"RAILTOKEN_LOCK_REDIS_MASTER":                 {"locks", func(c Config) any { return c.LockRedis.Master }, "locks"},
	"RAILTOKEN_LOCK_REDIS_SENTINELS":              {"f:1,g:2", func(c Config) any { return c.LockRedis.Sentinels }, []string{"f:1", "g:2"}},
	"RAILTOKEN_LOCK_REDIS_CLUSTER":                {"h:1", func(c Config) any { return c.LockRedis.Cluster }, []string{"h:1"}},
	"RAILTOKEN_LOCK_REDIS_USERNAME":               {"guard", func(c Config) any { return c.LockRedis.Username }, "guard"},
	"RAILTOKEN_LOCK_REDIS_PASSWORD":               {"lp", func(c Config) any { return c.LockRedis.Password }, Secret("lp")},
	"RAILTOKEN_LOCK_REDIS_SENTINEL_PASSWORD":      {"lsp", func(c Config) any { return c.LockRedis.SentinelPassword }, Secret("lsp")},
	"RAILTOKEN_LOCK_REDIS_DB":                     {"4", func(c Config) any { return c.LockRedis.DB }, 4},
	"RAILTOKEN_LOCK_REDIS_TLS":                    {"1", func(c Config) any { return c.LockRedis.TLS }, true},
	"RAILTOKEN_LOCK_REDIS_PASSWORD_FILE":          {"testdata/password", func(c Config) any { return c.LockRedis.Password }, Secret(" from a file ")},
	"RAILTOKEN_LOCK_REDIS_SENTINEL_PASSWORD_FILE": {"testdata/password", func(c Config) any { return c.LockRedis.SentinelPassword }, Secret(" from a file ")},
	"RAILTOKEN_LOCK_REDIS_TLS_CA_FILE":            {" TLS/ca.pem ", func(c Config) any { return c.LockRedis.TLSConfig != nil && c.LockRedis.TLSConfig.RootCAs != nil }, true},
	"RAILTOKEN_LOCK_REDIS_TLS_CERT_FILE":          {"TLS/cert.pem", func(c Config) any { return c.LockRedis.TLSConfig != nil }, true},
	"RAILTOKEN_LOCK_REDIS_TLS_KEY_FILE":           {"TLS/key.pem", func(c Config) any { return c.LockRedis.TLSConfig != nil }, true},
	"RAILTOKEN_LOCK_REDIS_TLS_SERVER_NAME": {" redis.internal ", func(c Config) any {
		return c.LockRedis.TLSConfig != nil && c.LockRedis.TLSConfig.ServerName == "redis.internal"
	}, true},

	"RAILTOKEN_LOCK_NODES": {"i:1, j:2,k:3", func(c Config) any { return c.LockRedis.Nodes }, []string{"i:1", "j:2", "k:3"}},
	"RAILTOKEN_LOCK_GUARD": {" Strict", func(c Config) any { return c.LockGuard }, locking.GuardStrict},

	"RAILTOKEN_QUEUES":                      {" audit = 3, allocate=1 ,mail,", func(c Config) any { return c.Queues }, map[string]int{"audit": 3, "allocate": 1, "mail": 1}},
	"RAILTOKEN_STRICT_PRIORITY":             {"TRUE", func(c Config) any { return c.StrictPriority }, true},
	"RAILTOKEN_CONCURRENCY":                 {"12", func(c Config) any { return c.Concurrency }, 12},
	"RAILTOKEN_SLOT_BUDGET":                 {"-1", func(c Config) any { return c.SlotBudget }, -1},
	"RAILTOKEN_LANES":                       {"64", func(c Config) any { return c.Redis.Lanes }, 64},
	"RAILTOKEN_TASK_CHECK_INTERVAL":         {"70ms", func(c Config) any { return c.TaskCheckInterval }, 70 * time.Millisecond},
	"RAILTOKEN_DELAYED_TASK_CHECK_INTERVAL": {" 2s", func(c Config) any { return c.DelayedTaskCheckInterval }, 2 * time.Second},
	"RAILTOKEN_SHUTDOWN_TIMEOUT":            {"20s", func(c Config) any { return c.ShutdownTimeout }, 20 * time.Second},
	"RAILTOKEN_LOCK_TTL":                    {"25s", func(c Config) any { return c.LockTTL }, 25 * time.Second},
	"RAILTOKEN_MAX_HOLD":                    {"1h", func(c Config) any { return c.MaxHold }, time.Hour},
	"RAILTOKEN_MAX_KEY_SIZE":                {"77", func(c Config) any { return c.MaxKeySize }, 77},
	"RAILTOKEN_MAX_KEYS":                    {"7", func(c Config) any { return c.MaxKeys }, 7},
	"RAILTOKEN_STRATEGY":                    {" FailFast ", func(c Config) any { return c.Strategy }, middleware.FailFast{}},
	"RAILTOKEN_ALLOW_EVICTION":              {"t", func(c Config) any { return c.AllowEviction }, true},
	"RAILTOKEN_ALLOW_UNKNOWN_ASYNQ":         {"true", func(c Config) any { return c.AllowUnknownAsynq }, true},
	"RAILTOKEN_ALLOW_SEPARATE_LOCKS":        {"true", func(c Config) any { return c.AllowSeparateLocks }, true},
	"RAILTOKEN_NAMESPACE":                   {" shop-a ", func(c Config) any { return c.Redis.Namespace }, "shop-a"},
	"RAILTOKEN_NAMESPACE_TASKS":             {"true", func(c Config) any { return c.Redis.NamespaceTasks }, true},
	"RAILTOKEN_DISABLE_REPORTS":             {"true", func(c Config) any { return c.DisableReports }, true},
	"RAILTOKEN_RECOVERY_AFTER":              {" Off ", func(c Config) any { return c.Recovery.After }, time.Duration(-1)},
	"RAILTOKEN_RECOVERY_DEATHS":             {"5", func(c Config) any { return c.Recovery.Deaths }, 5},
}

func TestEachVariableOfTheListIsTested(t *testing.T) {
	t.Parallel()
	if tested := slices.Sorted(maps.Keys(variables)); !slices.Equal(tested, EnvNames()) {
		t.Errorf("tested are\n%q;\nEnvNames gives\n%q", tested, EnvNames())
	}
}

func TestEachVariableGoesIntoItsField(t *testing.T) {
	for name, v := range variables {
		t.Run(name, func(t *testing.T) {
			setEnv(t, map[string]string{name: withTLSFiles(t, v.value)})
			cfg, err := FromEnv()
			if err != nil && strings.Contains(err.Error(), name+" is \"") {
				t.Errorf("the value cannot be read: %v", err)
			}
			if got := v.field(cfg); !reflect.DeepEqual(got, v.want) {
				t.Errorf("%q gives %#v; want %#v", v.value, got, v.want)
			}

			setEnv(t, nil)
			none, _ := FromEnv()
			if got := v.field(none); reflect.DeepEqual(got, v.want) {
				t.Errorf("unset, it gives %#v as well", got)
			}
		})
	}
}

func TestFromEnvAcceptsTheLeastAndTheMost(t *testing.T) {
	least := map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379"}
	most := map[string]string{}
	for name, v := range variables {
		most[name] = withTLSFiles(t, v.value)
	}
	for _, kind := range []string{"MASTER", "SENTINELS", "CLUSTER"} { // an address is of one kind
		delete(most, "RAILTOKEN_REDIS_"+kind)
		delete(most, "RAILTOKEN_LOCK_REDIS_"+kind)
	}
	delete(most, "RAILTOKEN_LOCK_NODES")
	most["RAILTOKEN_RECOVERY_AFTER"] = "30s" // what is off needs no Deaths
	for name := range most {
		delete(most, name+"_FILE") // of a password that is set
	}
	for name, vars := range map[string]map[string]string{"least": least, "most": most} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, vars)
			if _, err := FromEnv(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStrategiesByName(t *testing.T) {
	for name, want := range map[string]middleware.Strategy{
		"failfast": middleware.FailFast{}, "wait": middleware.Wait{}, "REQUEUE": middleware.Requeue{}, "": nil,
		"fifo": middleware.Requeue{Order: middleware.FIFO}, "StrictFIFO": middleware.Requeue{Order: middleware.StrictFIFO},
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", "RAILTOKEN_STRATEGY": name})
			cfg, err := FromEnv()
			if err != nil || !reflect.DeepEqual(cfg.Strategy, want) {
				t.Errorf("the strategy is %#v, %v; want %#v", cfg.Strategy, err, want)
			}
		})
	}
}

func TestBlankVariablesCountAsNotSet(t *testing.T) {
	vars := map[string]string{}
	for i, name := range EnvNames() {
		vars[name] = ""
		if i%2 == 0 && !strings.HasSuffix(name, "PASSWORD") && !strings.HasSuffix(name, "USERNAME") {
			vars[name] = " \t"
		}
	}
	vars["RAILTOKEN_REDIS_ADDR"] = "127.0.0.1:6379"
	setEnv(t, vars)
	got, err := FromEnv()
	if want := (Config{Redis: Redis{Addr: "127.0.0.1:6379"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("blank variables give %+v, %v; want %+v", got, err, want)
	}
}

func TestUnprefixedVariablesAreNotRead(t *testing.T) {
	vars := map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379"}
	for name, v := range variables {
		bare := strings.TrimPrefix(name, envPrefix+"_")
		vars[bare] = v.value
		for _, part := range []string{"LOCK_REDIS_", "REDIS_"} {
			if short, ok := strings.CutPrefix(bare, part); ok {
				vars[short] = v.value
			}
		}
	}
	setEnv(t, vars)
	got, err := FromEnv()
	if want := (Config{Redis: Redis{Addr: "127.0.0.1:6379"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("variables without the prefix give %+v, %v; want %+v", got, err, want)
	}
}

func TestUnknownVariableIsRefusedWithASuggestion(t *testing.T) {
	for name, suggestion := range map[string]string{
		"RAILTOKEN_REDIS_ADR":          "RAILTOKEN_REDIS_ADDR",
		"RAILTOKEN_CONCURENCY":         "RAILTOKEN_CONCURRENCY",
		"RAILTOKEN_LOCKTTL":            "RAILTOKEN_LOCK_TTL",
		"RAILTOKEN_LOCK_REDIS_SENTINL": "RAILTOKEN_LOCK_REDIS_SENTINELS",
		"RAILTOKEN_":                   "RAILTOKEN_",
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", name: "value-of-it"})
			_, err := FromEnv()
			wantParts(t, err, name+" is no variable", "did you mean "+suggestion)
			if strings.Contains(err.Error(), "value-of-it") {
				t.Errorf("the error shows the value, which may be a secret: %v", err)
			}
		})
	}
}

func TestVariablesOfOthersAreNotRefused(t *testing.T) {
	setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", "RAILTOKENS": "1", "XRAILTOKEN_X": "1", "RAILTOKEN": "1"})
	if _, err := FromEnv(); err != nil {
		t.Error(err)
	}
}

func TestFromEnvReportsEveryFaultAtOnce(t *testing.T) {
	faults := map[string]struct{ value, remedy string }{
		"RAILTOKEN_REDIS_ADDR":          {"localhost", "host:port"},
		"RAILTOKEN_REDIS_DB":            {"one", "whole number"},
		"RAILTOKEN_REDIS_TLS":           {"perhaps", "true or false"},
		"RAILTOKEN_LOCK_REDIS_MASTER":   {"locks", "set both"},
		"RAILTOKEN_QUEUES":              {"audit=x,mail,mail", "whole number"},
		"RAILTOKEN_CONCURRENCY":         {"1e3", "whole number"},
		"RAILTOKEN_TASK_CHECK_INTERVAL": {"50", "with its unit"},
		"RAILTOKEN_SHUTDOWN_TIMEOUT":    {"-5s", "above zero"},
		"RAILTOKEN_STRATEGY":            {"retry", "failfast, wait, requeue, fifo or strictfifo"},
		"RAILTOKEN_ALLOW_EVICTION":      {"yes", "true or false"},
		"RAILTOKEN_SLOT_BUDGETS":        {"2", "RAILTOKEN_SLOT_BUDGET"},
	}
	vars := map[string]string{"RAILTOKEN_LOCK_TTL": "80s", "RAILTOKEN_MAX_KEY_SIZE": "-1"}
	for name, f := range faults {
		vars[name] = f.value
	}
	setEnv(t, vars)
	_, err := FromEnv()
	for name, f := range faults {
		wantParts(t, err, name, f.remedy)
	}
	wantParts(t, err, "named twice", "MaxKeySize is -1", "1m20s")
	text := err.Error()
	if got := strings.Count(text, "\n") + 1; got != len(faults)+3 {
		t.Errorf("%d lines for %d faults:\n%s", got, len(faults)+3, text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "worker: ") && !strings.HasPrefix(line, "locking: ") {
			t.Errorf("a fault without the name of its package: %s", line)
		}
	}
}

func TestNumbersThatAreTooLargeAreRefused(t *testing.T) {
	for _, name := range []string{"RAILTOKEN_CONCURRENCY", "RAILTOKEN_LOCK_TTL", "RAILTOKEN_QUEUES"} {
		t.Run(name, func(t *testing.T) {
			value := "99999999999999999999999"
			switch name {
			case "RAILTOKEN_LOCK_TTL":
				value += "h"
			case "RAILTOKEN_QUEUES":
				value = "audit=" + value
			}
			setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", name: value})
			_, err := FromEnv()
			wantParts(t, err, name)
		})
	}
}

func TestEnvNamesAreSortedAndOfOneKind(t *testing.T) {
	t.Parallel()
	names := EnvNames()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("not sorted, or double: %q", names)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, envPrefix+"_") || strings.ToUpper(name) != name || strings.Contains(name, "__") {
			t.Errorf("%q is not named like the others", name)
		}
	}
}

func TestEnvironmentOfTheDefaultsIsTheDefaults(t *testing.T) {
	setEnv(t, map[string]string{
		"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", "RAILTOKEN_CONCURRENCY": "10", "RAILTOKEN_QUEUES": "default",
		"RAILTOKEN_TASK_CHECK_INTERVAL": "50ms", "RAILTOKEN_DELAYED_TASK_CHECK_INTERVAL": "1s", "RAILTOKEN_SHUTDOWN_TIMEOUT": "8s",
		"RAILTOKEN_SLOT_BUDGET": "5",
	})
	got, err := FromEnv()
	want := Config{Redis: Redis{Addr: "127.0.0.1:6379"}}.withDefaults()
	want.Logger, got.Logger = nil, nil
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the documented defaults give %+v, %v; want %+v", got, err, want)
	}
}

func TestLockOptionsOfTheEnvironmentAreThoseOfLocking(t *testing.T) {
	setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "127.0.0.1:6379", "RAILTOKEN_LOCK_TTL": "10ms"})
	_, err := FromEnv()
	want := locking.Options{TTL: 10 * time.Millisecond}.Validate()
	if want == nil || err == nil || !strings.Contains(err.Error(), want.Error()) {
		t.Errorf("a TTL of 10 ms gives %v; want %v", err, want)
	}
}

// FuzzParser looks for texts that are read as something that they are not, or that stop the program.
func FuzzParser(f *testing.F) {
	for _, v := range variables {
		f.Add(v.value)
	}
	f.Add("0x10")
	f.Fuzz(func(t *testing.T, text string) {
		p := parser{}
		n, d, b, queues := p.int("A", text), p.duration("B", text), p.bool("C", text), p.queues("D", text)
		if d < 0 {
			t.Errorf("%q is a duration of %v", text, d)
		}
		if blank := strings.TrimSpace(text) == ""; blank && (n != 0 || d != 0 || b || queues != nil || len(p.errs) > 0) {
			t.Errorf("blank %q counts as set: %d %v %t %v %v", text, n, d, b, queues, p.errs)
		}
		for name := range queues {
			if strings.ContainsAny(name, ",=") || strings.TrimSpace(name) != name {
				t.Errorf("%q names a queue %q", text, name)
			}
		}
		if _, err := time.ParseDuration(strings.TrimSpace(text)); err != nil && d != 0 {
			t.Errorf("%q is no duration, and is read as %v", text, d)
		}
	})
}
