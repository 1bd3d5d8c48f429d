package locking

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/locking/internal/pipeline"
)

// DefaultFenceTTL is how long a key's fence counter is kept after its last lease.
const DefaultFenceTTL = time.Hour

const (
	singleLeaders  = 2
	singleTimeout  = 2 * time.Second
	defaultRetries = 3 // the default of go-redis
)

// SingleOptions configures a [Single]. The zero value has every default.
type SingleOptions struct {
	// Label names this process to callers that are refused, when an attempt has no label of its own. [DefaultLabel]
	// when empty.
	Label string

	// FenceTTL is how long a key's fence counter outlives its last lease: 1 h when zero. It must be longer than MaxHold
	// of every attempt. After it a new counter begins at the server's clock, so tokens still grow as long as that clock
	// does. The tokens of one Single also grow when its server fails over to one whose clock is behind by less than
	// FenceTTL.
	FenceTTL time.Duration

	// RedisKey returns the Redis key of a business key's lock, to share locks with another program. It must be
	// injective, and a name with a brace must have a hash tag. No name may be another one followed by ":fence" or
	// ":notify", which are the fence counter and the subscription of that lock. When nil, the name is
	// "railtoken:lock:{" + the key with unsafe bytes percent-encoded + "}".
	RedisKey func(key string) string
}

// Validate returns every fault of the options at once, or nil.
func (o SingleOptions) Validate() error {
	if o.FenceTTL != 0 && o.FenceTTL < MinTTL {
		return errFenceTTL(o.FenceTTL)
	}
	return nil
}

// setDefaults fills in the defaults that the options of a Single and a Redlock share.
func setDefaults(label *string, fenceTTL *time.Duration, redisKey *func(string) string) {
	if *label = cleanLabel(*label); *label == "" {
		*label = cleanLabel(DefaultLabel())
	}
	if *fenceTTL == 0 {
		*fenceTTL = DefaultFenceTTL
	}
	if *redisKey == nil {
		*redisKey = lockKey
	}
}

func errFenceTTL(d time.Duration) error {
	return fmt.Errorf("locking: FenceTTL is %v: it must be longer than MaxHold, and at least %v", d, MinTTL)
}

// Single is a [Locker] on one Redis: a standalone server, a master behind Sentinel, or a Redis Cluster (each key on the
// server that has its slot). It takes one round trip to acquire and one to release. On a cluster, keys in different
// slots are taken one after another, in order, and given back when one is refused.
//
// On one server, calls that wait at the same time go out as one script call with the keys of all of them. A server that
// refuses several slots in one call, such as a cluster node or most cluster proxies, gets the calls one by one. A proxy
// must not split a script call silently, or route it by its first key alone: a lease of several keys is one call.
//
// It needs Redis 6.2 or later. It is safe for concurrent use.
type Single struct {
	client       redis.UniversalClient
	label        string
	fenceTTL     time.Duration
	lockKey      func(string) string
	sharded      bool
	clock        quorum.Clock       // of its tokens, in case a failover sets the server's clock back
	suspension   suspensionDetector // of its leases
	server       *pipeline.Server
	retries      int // of an attempt
	subscription *subscription
	pending      *retries // releases, and attempts to give back
}

// NewSingle returns a Locker on the Redis of client. The client stays the caller's: close it after the Locker.
// NewSingle returns an error when client is nil, and for a [redis.Ring]: when one of its servers is away, it sends
// callers to another one, where held keys seem free.
//
// Give it a client with ContextTimeoutEnabled: otherwise, when a server hangs, later callers stay queued for
// ReadTimeout. With every client an attempt ends with its context at once, and what the server grants to it later is
// given back.
func NewSingle(client redis.UniversalClient, opts SingleOptions) (*Single, error) {
	if err := errors.Join(validateClient(client), opts.Validate()); err != nil {
		return nil, err
	}
	setDefaults(&opts.Label, &opts.FenceTTL, &opts.RedisKey)
	s := &Single{client: client, label: opts.Label, fenceTTL: opts.FenceTTL, lockKey: opts.RedisKey}
	// A plain client talks to one server. Any other kind (Cluster, Ring, a wrapper) may talk to several, so keys are
	// kept apart.
	_, plain := client.(*redis.Client)
	s.sharded = !plain
	leaders := singleLeaders
	if s.sharded {
		leaders = 0
	}
	s.server = pipeline.New(client, pipeline.Options{Leaders: leaders, Timeout: singleTimeout})
	s.retries = retriesOf(client)
	s.subscription, s.pending = newSubscription(client), newRetries()
	return s, nil
}

// validateClient returns why a client is unfit for locks, or nil.
func validateClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("locking: NewSingle got a nil client (%T): give it a *redis.Client or a *redis.ClusterClient",
			client)
	}
	if _, ring := client.(*redis.Ring); ring {
		return errors.New("locking: locks cannot be kept on a ring of Redis servers, " +
			"which moves keys to another server when one is away: " +
			"use a *redis.Client, a *redis.ClusterClient, or NewRedlock with the servers of the ring")
	}
	return nil
}

// retriesOf returns how often a client would repeat a command. Calls for locks are sent once; an attempt without an
// answer is given back and made again instead.
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

// Close ends the watches. It waits up to 5 s for unanswered releases, and for attempts that are being given back, and
// then sends them no more: keep the client open until then. Leases stay valid and can be released; a release without an
// answer is then repeated for a second at most. An attempt fails with [redis.ErrClosed].
func (s *Single) Close() error {
	s.pending.wait(releaseTimeout)
	s.pending.end()
	return s.subscription.close()
}

// RedisKeys returns the Redis key of a key's lock, and of the subscription beside it, which exists while callers wait
// to be notified of the release. Both are empty when RedisKey made an unusable name, for which Acquire returns an
// error.
func (s *Single) RedisKeys(key string) (lock, notify string) {
	redisKeys, err := redisKeysOf([]string{key}, s.lockKey)
	if err != nil {
		return "", ""
	}
	return redisKeys[0], redisKeys[2]
}

// Acquire makes one attempt: see [Locker]. An attempt without an answer is given back and made again, as often as the
// client's MaxRetries.
func (s *Single) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	keys, opts, err := prepareFor(ctx, s, keys, opts)
	if err != nil {
		return nil, err
	}
	if err := opts.outlives(s.fenceTTL); err != nil {
		return nil, err
	}
	label := s.label
	if opts.Label != "" {
		label = cleanLabel(opts.Label)
	}
	parts, err := s.parts(keys)
	if err != nil {
		return nil, err
	}
	var pauses *backoff.ExponentialBackOff
	for retries := 0; ; retries++ {
		if s.pending.ended.Load() { // nothing would give it back
			return nil, &OpError{Op: "acquire", Keys: keys, Err: redis.ErrClosed}
		}
		lease, undone, err := s.attempt(ctx, keys, parts, label, opts)
		if err == nil || !undone || retries == s.retries || !errors.Is(err, ErrUnavailable) {
			return lease, err
		}
		if pauses == nil {
			pauses = newRetryPauses()
		}
		if !sleep(ctx, pauses.NextBackOff(), nil) {
			return nil, err
		}
	}
}

// attempt asks for the keys once. After an error undone reports whether nothing is left of it.
func (s *Single) attempt(
	ctx context.Context, keys []string, parts []part, label string, opts Options,
) (lease *Lease, undone bool, err error) {
	began := s.suspension.now()
	owner := newOwner(label, opts.block, began.watch.last)
	g := &singleGrant{single: s, owner: owner, block: opts.block, ttl: opts.TTL}
	for i := range parts {
		g.parts = parts[:i+1]
		if err := g.acquire(ctx, &parts[i], opts); err != nil {
			return nil, g.giveBack(ctx), err
		}
	}
	if lease, err = newLease(g, keys, opts, began); err != nil {
		return nil, g.giveBack(ctx), err
	}
	return lease, false, nil
}

// Watch subscribes to the release of any of the keys: see [Watcher].
func (s *Single) Watch(_ context.Context, keys []string) (<-chan struct{}, func(), error) {
	released, notify := newNotifier()
	drop, err := s.subscription.add(channels(keys, s.lockKey), notify)
	if err != nil {
		return nil, nil, err
	}
	return released, sync.OnceFunc(drop), nil
}

// part is some of an attempt's keys, which one script call can take.
type part struct {
	keys      []string
	redisKeys []string         // lock, fence counter and subscription of each
	acquire   pipeline.Command // the call that takes them
	asked     outcome          // of that
}

// parts divides the keys of an attempt: all in one part when they lie on one server or in one slot, else one part for
// each key.
func (s *Single) parts(keys []string) ([]part, error) {
	redisKeys, err := redisKeysOf(keys, s.lockKey)
	if err != nil {
		return nil, err
	}
	if !s.sharded || len(keys) == 1 || inOneSlot(redisKeys) {
		return []part{{keys: keys, redisKeys: redisKeys}}, nil
	}
	parts := make([]part, len(keys))
	for i := range keys {
		parts[i] = part{keys: keys[i : i+1], redisKeys: redisKeys[3*i : 3*i+3]}
	}
	return parts, nil
}
