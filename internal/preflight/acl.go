// Package access tells what a Redis and its user lack for tasks and locks, before a task fails for it.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Key is the business key that is asked about. It has a blank, so that it is no key of tasks that were named by a program.
const Key = "railtoken preflight"

// Needs is what a process does on a Redis.
type Needs struct {
	// Queues is the queues of asynq whose tasks are there; none when there are only locks.
	Queues []string
	// Locks is set when locks are there.
	Locks bool
	// RedisKeys is the names of the locks of [Key] that another program chose (RedisKey); the usual one when empty.
	RedisKeys []string
	// Info is set when nothing works without INFO.
	Info bool
	// AllowEviction is set when Redis may evict keys.
	AllowEviction bool
}

// Report is the ACL rules that are missing, as ACL SETUSER takes them.
type Report struct {
	Missing []string // without them tasks or locks fail
	Hints   []string // without them all works, but slower: channels
}

// MissingRules asks a Redis, and every master of a Redis Cluster, which rules its user lacks. It tries commands on a key that nobody uses, and leaves
// nothing behind. The error says what could not be asked; the report is then about the rest.
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
		errs = append(errs, err)
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error { return check(ctx, server) })
		errs = append(errs, err)
	} else {
		_ = check(ctx, client) // it returns none
	}
	return Report{Missing: inOrder(found.Missing), Hints: inOrder(found.Hints)}, errors.Join(errs...)
}

// inOrder returns each rule once: first keys, then channels, then commands.
func inOrder(rules []string) []string {
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b string) int {
		if a[0] != b[0] {
			return strings.IndexByte("~&+", a[0]) - strings.IndexByte("~&+", b[0])
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(rules)
}

// A probe is a command and the rules that it may turn out to lack: for its key or its channel, and for itself.
type probe struct {
	args []any
	rule string
	hint bool
}

// ask asks one server.
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

// subscribe returns why a channel cannot be subscribed to.
func subscribe(ctx context.Context, server redis.UniversalClient, channel string) error {
	pubsub := server.Subscribe(ctx, channel)
	defer pubsub.Close()
	_, err := pubsub.Receive(ctx)
	return err
}

// add adds the rule that a refused probe lacks.
func (r *Report) add(p probe, err error) {
	rule := ""
	switch refusalOf(err) {
	case allowed:
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

// refusal is what a user is refused.
type refusal int

const (
	allowed refusal = iota
	command
	name // of a key or a channel
)

// refusalOf returns what an error reply refuses. The texts differ between Redis 6.2, 7.0 and 7.2.
func refusalOf(err error) refusal {
	switch {
	case !redis.HasErrorPrefix(err, "NOPERM"):
		return allowed // what else is wrong with the command is no matter of rules
	case strings.Contains(err.Error(), "to run the"):
		return command
	default:
		return name
	}
}
