// Package preflight checks a Redis and its user before tasks and locks depend on them.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/namespace"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// Key is the business key for which rules are checked. It contains a space, so that no program uses it for its tasks.
const Key = "railtoken preflight"

// Needs is what a process needs from a Redis.
type Needs struct {
	// Queues are the asynq queues whose tasks are there; none if there are only locks.
	Queues []string
	// Lanes says that the queues have lanes.
	Lanes bool
	// Locks says that locks are there.
	Locks bool
	// RedisKeys are the Redis keys of the lock of [Key], if another program chose their names; the usual ones when
	// empty.
	RedisKeys []string
	// Info says that nothing works without INFO.
	Info bool
	// AllowEviction accepts a Redis that may evict keys.
	AllowEviction bool
}

// Report says what a server does not do for its user. The ACL rules are in the syntax of ACL SETUSER.
type Report struct {
	Missing []string // without these rules tasks or locks fail
	Hints   []string // without these rules for channels, waiting tasks are slower
	Lacks   []string // what the server cannot do for any user, with its reply where that says more
}

// LacksRemedy says what to do about a server that lacks something.
const LacksRemedy = "use Redis or Valkey itself, with its Lua scripts, and no proxy or service that leaves commands out"

// MissingRules returns the rules that the user of a Redis lacks. On a Redis Cluster it asks every master. It tries
// commands on a key of its own and leaves nothing behind. If the error is not nil, the report covers only the servers
// that replied.
func MissingRules(ctx context.Context, client redis.UniversalClient, needs Needs) (Report, error) {
	var (
		mu    sync.Mutex
		found Report
		errs  []error
	)
	check := func(ctx context.Context, server redis.UniversalClient) error {
		r, err := ask(ctx, server, needs)
		mu.Lock()
		defer mu.Unlock()
		found.Missing, found.Hints = append(found.Missing, r.Missing...), append(found.Hints, r.Hints...)
		found.Lacks = append(found.Lacks, r.Lacks...)
		errs = append(errs, err)
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return check(ctx, server) })
		errs = append(errs, err)
	} else {
		_ = check(ctx, client) // it returns none
	}
	slices.Sort(found.Lacks)
	in := namespace.Of(client)
	return Report{
		Missing: inOrder(in, found.Missing), Hints: inOrder(in, found.Hints), Lacks: slices.Compact(found.Lacks),
	}, errors.Join(errs...)
}

// inOrder returns each rule once, for names in a namespace: first those for keys, then for channels, then for commands.
func inOrder(in namespace.Namespace, rules []string) []string {
	rules = slices.Clone(rules)
	for i, rule := range rules {
		if rule[0] != '+' {
			rules[i] = rule[:1] + in.Rule(rule[1:])
		}
	}
	slices.SortFunc(rules, func(a, b string) int {
		if a[0] != b[0] {
			return strings.IndexByte("~&+", a[0]) - strings.IndexByte("~&+", b[0])
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(rules)
}

// probe is a command, and the rule for its key or channel that the user may turn out to lack. The other rule that it
// may lack is that for the command.
type probe struct {
	args []any
	rule string
	hint bool
}

// ask returns the rules that a user lacks on one server.
func ask(ctx context.Context, server redis.UniversalClient, needs Needs) (Report, error) {
	probes := probesOf(needs)
	cmds := make([]redis.Cmder, len(probes))
	_, _ = server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, p := range probes {
			cmds[i] = pipe.Do(ctx, p.args...)
		}
		return nil
	})
	var found Report
	for i, p := range probes {
		err := cmds[i].Err()
		if _, ok := errors.AsType[redis.Error](err); err != nil && !ok {
			return found, fmt.Errorf("ask what the user may do: %w", err)
		}
		found.add(p, err)
	}
	for _, channel := range channelsOf(needs) {
		p := probe{args: []any{"subscribe"}, rule: ruleOf("&", channel), hint: true}
		err := subscribe(ctx, server, channel)
		if _, ok := errors.AsType[redis.Error](err); err != nil && !ok {
			return found, fmt.Errorf("ask what the user may hear: %w", err)
		}
		found.add(p, err)
	}
	return found, nil
}

// lack returns what a server lacks that has answered a probe with this error.
func (p probe) lack(err error) string {
	name := fmt.Sprint(p.args[0])
	if name == "eval" {
		reply, _, _ := strings.Cut(err.Error(), ", with args") // which would show keys
		return fmt.Sprintf("Lua scripts as asynq and railtoken send them (%s)", reply)
	}
	return "the command " + strings.ToUpper(name)
}

// subscribe returns why the user cannot subscribe to a channel, or nil.
func subscribe(ctx context.Context, server redis.UniversalClient, channel string) error {
	pubsub := server.Subscribe(ctx, channel)
	defer pubsub.Close()
	_, err := pubsub.Receive(ctx)
	return err
}

// add adds the rule whose lack made a probe fail.
func (r *Report) add(p probe, err error) {
	rule := ""
	switch refusalOf(err) {
	case allowed:
		return
	case lacking:
		if !p.hint { // without channels, waiting tasks are slower
			r.Lacks = append(r.Lacks, p.lack(err))
		}
		return
	case command:
		rule = "+" + fmt.Sprint(p.args[0])
	case name:
		rule = p.rule
	}
	if p.hint {
		r.Hints = append(r.Hints, rule)
	} else {
		r.Missing = append(r.Missing, rule)
	}
}

// refusal is what a user was refused.
type refusal int

const (
	allowed refusal = iota
	command
	name    // that of a key or a channel
	lacking // the server does not have it
)

// refusalOf returns what an error reply refuses. Its text differs between Redis 6.2, 7.0 and 7.2.
func refusalOf(err error) refusal {
	switch {
	case rediswire.IsLacking(err):
		return lacking
	case !rediswire.Says(err, rediswire.NoPerm):
		return allowed // any other error has nothing to do with rules
	case strings.Contains(err.Error(), "to run the"):
		return command
	default:
		return name
	}
}
