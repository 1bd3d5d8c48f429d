package locking

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	defaultNodeTimeout = 50 * time.Millisecond
	defaultMaxTTL      = 55 * time.Second
	dialTimeout        = time.Second
)

// GuardMode is how a [Redlock] keeps servers that may have forgotten locks from voting: servers that were restarted, or
// promoted after a failover, within the last MaxTTL. Such a server could let a second holder in.
//
// A server does not vote until a Locker has watched its process for MaxTTL, 55 s by default. Until a majority votes,
// attempts fail with [ErrUnavailable], and the error also matches [ErrQuarantined]. In tests use GuardOff.
//
// Lockers measure that time by their own monotonic clocks, because a server's clock may have been set since it started.
// The first Locker that has watched a server leaves a mark there ("railtoken:watched"), so later ones need not wait. A
// program that runs for less than MaxTTL depends on such a mark.
type GuardMode int

// The modes of the guard.
const (
	// GuardConnect checks a server on each new connection, because a restart always breaks connections. It costs nothing
	// per lock. Use it for masters with direct connections and without failover: a master that is made a replica and then
	// a master again (REPLICAOF) keeps its connections, which only GuardStrict notices.
	GuardConnect GuardMode = iota
	// GuardStrict also checks the server in every acquisition, inside the script. Use it for servers behind a proxy that
	// keeps connections when the server changes. It costs 7 to 9 us of the server's time per acquisition.
	GuardStrict
	// GuardOff lets every server vote at once. Use it for tests, development, and servers that keep every write through a
	// restart (appendfsync always, no failover). Even then, if two nodes are the same server, only one of them votes.
	GuardOff
)

// String returns "connect", "strict" or "off".
func (m GuardMode) String() string {
	switch m {
	case GuardConnect:
		return "connect"
	case GuardStrict:
		return "strict"
	case GuardOff:
		return "off"
	default:
		return fmt.Sprintf("GuardMode(%d)", int(m))
	}
}

// RedlockOptions configures a [Redlock]. The zero value uses the defaults.
type RedlockOptions struct {
	// Label names this process to refused callers if an attempt has no label of its own. [DefaultLabel] when empty.
	Label string

	// FenceTTL is how long a key's fence counters outlive its last lease: 1 h when zero. It must be longer than the
	// MaxHold of every attempt. A counter that has expired starts again from the clock of the next client, so tokens still
	// grow as long as the clocks of all clients agree within FenceTTL.
	FenceTTL time.Duration

	// RedisKey returns the Redis key of a business key's lock: see [SingleOptions].
	RedisKey func(key string) string

	// Namespace is as in [SingleOptions].
	Namespace string

	// NodeTimeout is how long a node may take to answer a call once it is sent: 50 ms when zero. It must be far below
	// the TTL. A slow or dead node does not delay an attempt whose outcome is certain without it. A node that usually
	// answers slowly, for example on a busy machine, gets up to ten times NodeTimeout. The first connection takes
	// several round trips, so with distant servers the first attempts may fail with ErrUnavailable.
	//
	// Under overload, calls form a queue in this process, with renewals and releases before attempts. An attempt waits for
	// a quarter of its TTL at most; then it fails with ErrUnavailable, and its unsent calls are never sent.
	NodeTimeout time.Duration

	// MaxTTL is the longest TTL that any client of these nodes may use, and the time for which a restarted server does not
	// vote. It must be the same in all clients. Attempts with a longer TTL are refused. MaxTTL is at least 1 s and at most
	// FenceTTL; 55 s when zero.
	MaxTTL time.Duration

	// Guard is GuardConnect when zero.
	Guard GuardMode
}

// withDefaults returns the options with every zero replaced by its default.
func (o RedlockOptions) withDefaults() RedlockOptions {
	setDefaults(&o.Label, &o.FenceTTL, &o.RedisKey)
	if o.NodeTimeout == 0 {
		o.NodeTimeout = defaultNodeTimeout
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = min(defaultMaxTTL, o.FenceTTL)
	}
	return o
}

// pipelineTimeout is how long a pipeline may take before its connection is closed. It is at least a second, because
// without a late answer it is unknown what was granted.
func (o RedlockOptions) pipelineTimeout() time.Duration { return max(dialTimeout, o.NodeTimeout) }

// Validate returns an error that lists all problems with the options, or nil.
func (o RedlockOptions) Validate() error {
	o = o.withDefaults()
	errs := []error{checkFenceTTL(o.FenceTTL), checkNamespace(o.Namespace)}
	if o.MaxTTL < MinTTL || o.MaxTTL > o.FenceTTL {
		errs = append(errs, fmt.Errorf("locking: MaxTTL is %v: it must be at least %v, and at most FenceTTL, %v",
			o.MaxTTL, MinTTL, o.FenceTTL))
	}
	if o.NodeTimeout < time.Millisecond || o.NodeTimeout > o.MaxTTL/4 {
		errs = append(errs, fmt.Errorf("locking: NodeTimeout is %v: "+
			"it must be at least 1ms and far below the TTL, at most %v", o.NodeTimeout, o.MaxTTL/4))
	}
	if o.Guard < GuardConnect || o.Guard > GuardOff {
		errs = append(errs, fmt.Errorf("locking: Guard is %v: use GuardConnect, GuardStrict or GuardOff", o.Guard))
	}
	return errors.Join(errs...)
}

// validateNodes returns the faults of a list of nodes, or nil.
func validateNodes(nodes []*redis.Options) error {
	if len(nodes) < 3 {
		return fmt.Errorf("locking: %d nodes: Redlock needs at least 3 independent servers; for one use NewSingle",
			len(nodes))
	}
	seen := map[string]int{}
	var errs []error
	for i, o := range nodes {
		if o == nil {
			errs = append(errs, fmt.Errorf("locking: node %d has no options", i))
			continue
		}
		if o.Dialer == nil && (o.Addr == "" || strings.Contains(o.Addr, "://") || strings.Contains(o.Addr, "@")) {
			errs = append(errs, fmt.Errorf("locking: node %d has no usable Addr: "+
				"give host:port alone, and user and password in fields of their own", i))
			continue
		}
		addr := o.Network + "/" + strings.ToLower(o.Addr)
		if j, ok := seen[addr]; ok && o.Dialer == nil {
			errs = append(errs, fmt.Errorf("locking: nodes %d and %d are the same server %q: name each once",
				j, i, o.Addr))
		}
		seen[addr] = i
	}
	return errors.Join(errs...)
}

// nodeOptions returns the options of a Redlock's client of one node.
func nodeOptions(o redis.Options, timeout time.Duration) redis.Options {
	o.MaxRetries = -1 // a repeated call could arrive after later ones; the quorum makes up for a lost call
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = timeout, timeout
	if o.DialTimeout == 0 || o.DialTimeout > dialTimeout {
		o.DialTimeout = dialTimeout
	}
	o.DialerRetries, o.PoolTimeout = 1, dialTimeout
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 4, 0, 0, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}
