package worker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/similar"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// envPrefix is the prefix of the names of all variables.
const envPrefix = "RAILTOKEN"

// redisEnv contains the variables of one Redis as text.
type redisEnv struct {
	Addr             string `split_words:"true"`
	Master           string `split_words:"true"`
	Sentinels        string `split_words:"true"`
	Cluster          string `split_words:"true"`
	Username         string `split_words:"true"`
	Password         string `split_words:"true"`
	SentinelPassword string `split_words:"true"`
	DB               string `split_words:"true"`
	TLS              string `split_words:"true"`

	PasswordFile         string `split_words:"true"`
	SentinelPasswordFile string `split_words:"true"`
	TLSCaFile            string `split_words:"true"`
	TLSCertFile          string `split_words:"true"`
	TLSKeyFile           string `split_words:"true"`
	TLSServerName        string `split_words:"true"`
}

// env contains all variables as text, because envconfig stops at the first value that it cannot parse, and all of them
// must be reported.
type env struct {
	Redis                    redisEnv `split_words:"true"`
	LockRedis                redisEnv `split_words:"true"`
	Queues                   string   `split_words:"true"`
	StrictPriority           string   `split_words:"true"`
	Concurrency              string   `split_words:"true"`
	SlotBudget               string   `split_words:"true"`
	TaskCheckInterval        string   `split_words:"true"`
	DelayedTaskCheckInterval string   `split_words:"true"`
	ShutdownTimeout          string   `split_words:"true"`
	Lanes                    string   `split_words:"true"`
	LockTTL                  string   `split_words:"true"`
	MaxHold                  string   `split_words:"true"`
	MaxKeySize               string   `split_words:"true"`
	MaxKeys                  string   `split_words:"true"`
	Strategy                 string   `split_words:"true"`
	AllowEviction            string   `split_words:"true"`
	AllowUnknownAsynq        string   `split_words:"true"`
	AllowSeparateLocks       string   `split_words:"true"`
	DisableReports           string   `split_words:"true"`
	RecoveryAfter            string   `split_words:"true"`
	RecoveryDeaths           string   `split_words:"true"`
	LockNodes                string   `split_words:"true"`
	LockGuard                string   `split_words:"true"`
	Namespace                string   `split_words:"true"`
	NamespaceTasks           string   `split_words:"true"`
}

// FromEnv returns the configuration from the RAILTOKEN_* variables: see the fields of [Config] and [Redis]. A variable
// that is set but blank counts as not set. If anything is invalid, FromEnv reports all problems in one error: values
// that cannot be parsed, variables that do not exist, and what [Config.Validate] finds.
func FromEnv() (Config, error) {
	var e env
	if err := envconfig.Process(envPrefix, &e); err != nil {
		return Config{}, fmt.Errorf("worker: read the environment: %w", err)
	}
	p := parser{}
	cfg := p.config(e)
	cfg.LockRedis.Nodes = list(e.LockNodes)
	cfg.Redis.Namespace, cfg.Redis.NamespaceTasks = strings.TrimSpace(e.Namespace), p.bool("NAMESPACE_TASKS", e.NamespaceTasks)
	if !cfg.LockRedis.isZero() {
		cfg.LockRedis = cfg.LockRedis.inherits(cfg.Redis)
	}
	errs := append(unknownVariables(os.Environ()), p.errs...)
	errs = append(errs, cfg.Validate())
	return cfg, errors.Join(errs...)
}

// EnvNames returns the sorted names of all variables that [FromEnv] reads.
func EnvNames() []string {
	var out bytes.Buffer
	if err := envconfig.Usagef(envPrefix, &env{}, &out, "{{range .}}{{usage_key .}}\n{{end}}"); err != nil {
		panic("worker: the variables cannot be listed: " + err.Error())
	}
	names := strings.Fields(out.String())
	slices.Sort(names)
	return names
}

// unknownVariables returns an error for each variable that has our prefix but does not exist.
func unknownVariables(environ []string) []error {
	names := EnvNames()
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix+"_") || slices.Contains(names, name) {
			continue
		}
		errs = append(errs,
			fmt.Errorf("worker: %s is no variable of railtoken: correct or unset it (did you mean %s?)",
				name, similar.Nearest(name, names)))
	}
	return errs
}

// parser parses text and collects errors.
type parser struct{ errs []error }

func (p *parser) config(e env) Config {
	at := p.redis("REDIS", e.Redis)
	at.Lanes = p.int("LANES", e.Lanes)
	return Config{
		Redis: at, LockRedis: p.redis(lockVariable, e.LockRedis),
		Queues:                   p.queues("QUEUES", e.Queues),
		StrictPriority:           p.bool("STRICT_PRIORITY", e.StrictPriority),
		Concurrency:              p.int("CONCURRENCY", e.Concurrency),
		SlotBudget:               p.int("SLOT_BUDGET", e.SlotBudget),
		TaskCheckInterval:        p.duration("TASK_CHECK_INTERVAL", e.TaskCheckInterval),
		DelayedTaskCheckInterval: p.duration("DELAYED_TASK_CHECK_INTERVAL", e.DelayedTaskCheckInterval),
		ShutdownTimeout:          p.duration("SHUTDOWN_TIMEOUT", e.ShutdownTimeout),
		LockTTL:                  p.duration("LOCK_TTL", e.LockTTL),
		MaxHold:                  p.duration("MAX_HOLD", e.MaxHold),
		MaxKeySize:               p.int("MAX_KEY_SIZE", e.MaxKeySize),
		MaxKeys:                  p.int("MAX_KEYS", e.MaxKeys),
		Strategy:                 p.strategy("STRATEGY", e.Strategy),
		AllowEviction:            p.bool("ALLOW_EVICTION", e.AllowEviction),
		AllowUnknownAsynq:        p.bool("ALLOW_UNKNOWN_ASYNQ", e.AllowUnknownAsynq),
		AllowSeparateLocks:       p.bool("ALLOW_SEPARATE_LOCKS", e.AllowSeparateLocks),
		DisableReports:           p.bool("DISABLE_REPORTS", e.DisableReports),
		LockGuard:                p.guard("LOCK_GUARD", e.LockGuard),
		Recovery:                 attach.Recovery{After: p.durationOrOff("RECOVERY_AFTER", e.RecoveryAfter), Deaths: p.int("RECOVERY_DEATHS", e.RecoveryDeaths)},
	}
}

func (p *parser) redis(name string, e redisEnv) Redis {
	return Redis{
		Addr: strings.TrimSpace(e.Addr), Master: strings.TrimSpace(e.Master),
		Sentinels: list(e.Sentinels), Cluster: list(e.Cluster),
		Username: e.Username, Password: p.secret(name+"_PASSWORD", e.Password, e.PasswordFile),
		SentinelPassword: p.secret(name+"_SENTINEL_PASSWORD", e.SentinelPassword, e.SentinelPasswordFile),
		DB:               p.int(name+"_DB", e.DB), TLS: p.bool(name+"_TLS", e.TLS), TLSConfig: p.tls(name+"_TLS", e),
	}
}

func (p *parser) fault(name, text, remedy string) {
	p.errs = append(p.errs, fmt.Errorf("worker: %s_%s is %q: %s", envPrefix, name, text, remedy))
}

func (p *parser) int(name, text string) int {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		p.fault(name, text, "give a whole number, such as 10")
	}
	return n
}

func (p *parser) bool(name, text string) bool {
	text = strings.TrimSpace(text)
	if text == "" {
		return false
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		p.fault(name, text, "give true or false")
	}
	return b
}

func (p *parser) duration(name, text string) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		p.fault(name, text, "give a duration with its unit, such as 30s or 250ms")
		return 0
	}
	if d <= 0 {
		p.fault(name, text, "give a duration above zero, or unset it for the default")
		return 0
	}
	return d
}

// durationOrOff parses a duration, or the word off, which is a negative one.
func (p *parser) durationOrOff(name, text string) time.Duration {
	if strings.EqualFold(strings.TrimSpace(text), "off") {
		return -1
	}
	return p.duration(name, text)
}

func (p *parser) queues(name, text string) map[string]int {
	var queues map[string]int
	for _, item := range list(text) {
		queue, weight, weighted := strings.Cut(item, "=")
		queue = strings.TrimSpace(queue)
		n := 1
		if weighted {
			var err error
			if n, err = strconv.Atoi(strings.TrimSpace(weight)); err != nil {
				p.fault(name, item, "give the weight of a queue as a whole number, such as audit=3,allocate=1")
				continue
			}
		}
		if _, ok := queues[queue]; ok {
			p.fault(name, item, "the queue is named twice: name it once")
			continue
		}
		if queues == nil {
			queues = map[string]int{}
		}
		queues[queue] = n
	}
	return queues
}

func (p *parser) guard(name, text string) locking.GuardMode {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "connect":
		return locking.GuardConnect
	case "strict":
		return locking.GuardStrict
	case "off":
		return locking.GuardOff
	default:
		p.fault(name, text, "use connect, strict or off")
		return locking.GuardConnect
	}
}

func (p *parser) strategy(name, text string) middleware.Strategy {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "":
		return nil
	case "failfast":
		return middleware.FailFast{}
	case "wait":
		return middleware.Wait{}
	case "requeue":
		return middleware.Requeue{}
	case "fifo":
		return middleware.Requeue{Order: middleware.FIFO}
	case "strictfifo":
		return middleware.Requeue{Order: middleware.StrictFIFO}
	default:
		p.fault(name, text, "use failfast, wait, requeue, fifo or strictfifo")
		return nil
	}
}

// list returns the items between commas, without surrounding spaces and without empty items.
func list(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
