package locking

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/locking/internal/node"
)

// DefaultFenceTTL is how long a key's fence counter is kept after its last lease.
const DefaultFenceTTL = time.Hour

const (
	singleLeaders = 2
	singleTimeout = 2 * time.Second

	defaultRetries = 3 // as go-redis has it
)

// SingleOptions configures a [Single]. The zero value has every default.
type SingleOptions struct {
	// Label names this process to those who are refused, when an attempt gives no label of its own. [DefaultLabel] when empty.
	Label string

	// FenceTTL is how long a key's fence counter outlives its last lease. It must be longer than MaxHold of every attempt;
	// 1 h when zero. After it a new counter begins at the server's clock, so tokens still grow as long as that clock does. Those that
	// one Single gives also grow when its server fails over to one whose clock is behind, by less than FenceTTL.
	FenceTTL time.Duration

	// RedisKey returns the full name of the Redis string that is the lock of a business key, for taking the same locks as
	// another program does. It must be injective, a name with a brace must have a hash tag, and no name may be another one
	// with ":fence" or ":interest" behind it, which are the counter and the mark of that one. When nil, the name is
	// "railtoken:lock:{" + the key with unsafe bytes percent-encoded + "}".
	RedisKey func(key string) string
}

// Validate returns every fault of the options at once, or nil.
func (o SingleOptions) Validate() error {
	if o.FenceTTL != 0 && o.FenceTTL < MinTTL {
		return fmt.Errorf("locking: FenceTTL is %v: it must be longer than MaxHold, and at least %v", o.FenceTTL, MinTTL)
	}
	return nil
}

// Single is a [Locker] on one Redis: a standalone server, a master watched by Sentinel, or a Redis Cluster (each key on
// the one node that has its slot). It takes one round trip to acquire and one to release; on a cluster several keys
// that lie in different slots are taken one after another, in order, and given back when one is refused.
//
// On one server, calls that wait at the same time are put together in one script call with the keys of all of them. A server that refuses
// several slots in one call, as a node of a cluster and most proxies of one do, gets them one by one. A proxy must not split
// a script call silently, or send it to the server of its first key: that never was supported, since a lease of several keys is one call.
//
// It needs Redis 6.2 or later. It is safe for use by many goroutines at the same time.
type Single struct {
	client  redis.UniversalClient
	label   string
	fence   time.Duration
	name    func(string) string
	sharded bool
	clock   quorum.Clock // of the tokens that it has had, for a server whose clock is behind that of the one before
	pulse   pulse        // of its leases
	node    *node.Node
	retries int // of an attempt
	notices *notices
	pending pending // releases and take-backs
}

// NewSingle returns a Locker on the Redis that client is connected to. The client stays the caller's: close it after the
// Locker. It returns an error when client is nil, and for a [redis.Ring]: when one of its servers is away, it sends callers to another
// one, where the keys that are held seem to be free.
//
// Give it a client with ContextTimeoutEnabled: when a server hangs, any other keeps those who come after in the queue for as long as its
// ReadTimeout says. With every client an attempt ends with its context, at once; what the server grants to it later is given back.
func NewSingle(client redis.UniversalClient, opts SingleOptions) (*Single, error) {
	if err := errors.Join(validateClient(client), opts.Validate()); err != nil {
		return nil, err
	}
	s := &Single{client: client, label: cleanLabel(opts.Label), fence: opts.FenceTTL, name: opts.RedisKey}
	if s.label == "" {
		s.label = cleanLabel(DefaultLabel())
	}
	if s.fence == 0 {
		s.fence = DefaultFenceTTL
	}
	if s.name == nil {
		s.name = lockName
	}
	// A plain client talks to one server. Of any other kind (Cluster, Ring, a wrapper) it is not known, so keys are kept apart.
	_, plain := client.(*redis.Client)
	s.sharded = !plain
	leaders := singleLeaders
	if s.sharded {
		leaders = 0
	}
	s.node = node.New(client, node.Options{Leaders: leaders, Timeout: singleTimeout})
	s.retries = retriesOf(client)
	s.notices = newNotices(client)
	return s, nil
}

// validateClient returns why locks cannot be kept by a client, or nil.
func validateClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("locking: NewSingle got a nil client (%T): give it a *redis.Client or a *redis.ClusterClient", client)
	}
	if _, ring := client.(*redis.Ring); ring {
		return errors.New("locking: locks cannot be kept on a ring of Redis servers, which moves keys to another server when one is away: " +
			"use a *redis.Client, a *redis.ClusterClient, or NewRedlock with the servers of the ring")
	}
	return nil
}

// retriesOf returns how often a client would send a command again. Calls for locks are sent once, and an attempt that had no answer is
// taken back and made again instead.
func retriesOf(client redis.UniversalClient) int {
	switch c := client.(type) {
	case *redis.Client:
		return max(c.Options().MaxRetries, 0)
	case *redis.ClusterClient:
		return max(c.Options().MaxRedirects, 0)
	default:
		return defaultRetries
	}
}

// Close ends the watches on releases. It waits for releases, and for attempts that are taken back, that have had no answer, for 5 s at most, and sends
// them no more: keep the client open until then. Leases that are held stay valid and can be released; what has no answer then is sent again for a
// second at most. An attempt fails with [redis.ErrClosed].
func (s *Single) Close() error {
	s.pending.wait(releaseTimeout)
	s.pending.end()
	return s.notices.close()
}

// RedisKeys returns the full names of the Redis string that is the lock of a key, and of the mark beside it that says that somebody waits for the key.
// They are empty when RedisKey has made an unusable name of the key, for which Acquire returns an error.
func (s *Single) RedisKeys(key string) (lock, interest string) {
	names, err := redisKeys([]string{key}, s.name)
	if err != nil {
		return "", ""
	}
	return names[0], names[2]
}

// Acquire makes one attempt: see [Locker]. One that has no answer is taken back and made again, as often as MaxRetries of the client says.
func (s *Single) Acquire(ctx context.Context, names []string, opts Options) (*Lease, error) {
	names, opts, err := Prepare(names, opts)
	if err != nil {
		return nil, err
	}
	if err := notReentrant(ctx, s, names); err != nil {
		return nil, err
	}
	if err := opts.outlives(s.fence); err != nil {
		return nil, err
	}
	label := s.label
	if opts.Label != "" {
		label = cleanLabel(opts.Label)
	}
	parts, err := s.parts(names)
	if err != nil {
		return nil, err
	}
	var pauses *backoff.ExponentialBackOff
	for retries := 0; ; retries++ {
		if s.pending.over.Load() { // nobody would take it back
			return nil, &OpError{Op: "acquire", Keys: names, Err: redis.ErrClosed}
		}
		lease, undone, err := s.attempt(ctx, names, parts, label, opts)
		if err == nil || !undone || retries == s.retries || !errors.Is(err, ErrUnavailable) {
			return lease, err
		}
		if pauses == nil {
			pauses = newRetry()
		}
		if !doze(ctx, pauses.NextBackOff(), nil) {
			return nil, err
		}
	}
}

// attempt asks for the keys once. After an error undone reports whether nothing is left of it.
func (s *Single) attempt(ctx context.Context, names []string, parts []part, label string, opts Options) (lease *Lease, undone bool, err error) {
	began := s.pulse.now()
	g := &singleGrant{single: s, owner: newOwner(label, opts.Block, began.watch.last), block: opts.Block, ttl: opts.TTL}
	for i := range parts {
		g.parts = parts[:i+1]
		if err := g.acquire(ctx, &parts[i], opts); err != nil {
			return nil, g.takeBack(ctx), err
		}
	}
	if lease, err = NewLease(g, names, opts, began); err != nil {
		return nil, g.takeBack(ctx), err
	}
	return lease, false, nil
}

// Watch returns a watch on the release of any of the keys: see [Watcher].
func (s *Single) Watch(_ context.Context, names []string) (*Watch, error) {
	w, notify := newWatch()
	drop, err := s.notices.watch(channels(names, s.name), notify)
	if err != nil {
		return nil, err
	}
	w.close = drop
	return w, nil
}

// part is some of an attempt's keys: those that one script can take at once.
type part struct {
	names   []string     // business keys
	redis   []string     // lock, fence counter and interest mark of each
	acquire node.Command // the call that takes them
	asked   outcome      // of that
}

// parts divides the keys of an attempt: all in one when they lie on one server or in one slot, else each for itself.
func (s *Single) parts(names []string) ([]part, error) {
	all, err := redisKeys(names, s.name)
	if err != nil {
		return nil, err
	}
	oneSlot := true
	for i := 3; s.sharded && i < len(all); i += 3 {
		oneSlot = oneSlot && keys.Slot(all[i]) == keys.Slot(all[0])
	}
	if oneSlot {
		return []part{{names: names, redis: all}}, nil
	}
	parts := make([]part, len(names))
	for i := range names {
		parts[i] = part{names: names[i : i+1], redis: all[3*i : 3*i+3]}
	}
	return parts, nil
}
