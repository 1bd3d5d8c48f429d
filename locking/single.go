package locking

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/backlog"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/quorum"
	"github.com/railtoken/railtoken/internal/subscription"
)

const (
	singleLeaders  = 2
	singleTimeout  = 2 * time.Second
	defaultRetries = 3 // the default of go-redis
)

// SingleOptions configures a [Single]. The zero value uses the defaults.
type SingleOptions struct {
	// Label names this process to refused callers if an attempt has no label of its own. [DefaultLabel] when empty.
	Label string

	// FenceTTL is how long a key's fence counter outlives its last lease: 1 h when zero. It must be longer than the
	// MaxHold of every attempt. A counter that has expired starts again from the server's clock, so tokens still grow as
	// long as that clock does. The tokens of one Single also grow across a failover to a server whose clock is behind by
	// less than FenceTTL.
	FenceTTL time.Duration

	// RedisKey returns the Redis key of a business key's lock, to share locks with another program. Different keys must
	// have different names, and a name with a brace must have a hash tag. No name may be another name followed by ":fence"
	// or ":notify", which belong to that lock. When nil, the name is "railtoken:lock:{" + the key with unsafe bytes
	// percent-encoded + "}".
	RedisKey func(key string) string

	// Lanes is how many lanes the tasks have whose keys are locked, as in attach.Options: then the lock of a key is in the slot of its
	// lane, and its name is another one, which RedisKeys of the Single returns. It needs a *redis.ClusterClient. RedisKey must be nil
	// then. None when 0. Attempts on a Redis Cluster fail, unless RedisKey is set, while its key railtoken:lanes has another number: the
	// first process of all writes it.
	Lanes int

	// Namespace keeps applications apart that share a Redis: "shop-a" puts "shop-a:" before each Redis key and channel, also
	// before the names of RedisKey. The Single then uses connections of its own, which Close closes. A client that has the
	// namespace already, by attach.Namespaced, may be given instead. None when empty. On a Redis Cluster each name of a
	// RedisKey must then have a hash tag.
	Namespace string

	// AllowEviction accepts a Redis that may evict keys, and thus locks that are held, when its memory is full: two
	// callers may then hold one key. By default, every attempt on such a Redis fails with [ErrUnavailable]. The first
	// attempt asks with INFO, later ones have it asked again once a minute. A Redis without INFO is accepted.
	AllowEviction bool
}

// Validate returns an error that lists all problems with the options, or nil.
func (o SingleOptions) Validate() error {
	_, err := lanes.New(o.Lanes)
	if err != nil {
		err = fmt.Errorf("locking: %w", err)
	} else if o.Lanes > 0 && o.RedisKey != nil {
		err = errors.New("locking: Lanes and RedisKey are both set: each names the locks; leave out RedisKey")
	}
	return errors.Join(checkFenceTTL(o.FenceTTL), checkNamespace(o.Namespace), err)
}

// Single is a [Locker] on one Redis: a standalone server, a master behind Sentinel, or a Redis Cluster (each key on the
// server that has its slot). It takes one round trip to acquire and one to release. On a cluster, keys in different
// slots are taken one after another, in order, and given back when one is refused.
//
// Concurrent calls to one server are batched into one script call, and those to one master of a cluster into one
// pipeline. A server that refuses several slots in one call, such as most cluster proxies, gets them one by one. Because
// a lease of several keys is one script call, a proxy must not split such calls silently, or route them by their first
// key alone.
//
// It needs Redis 6.2 or later. It is safe for concurrent use.
type Single struct {
	client       redis.UniversalClient // in the namespace
	conn         io.Closer             // the client, if NewSingle has made it; else nil
	label        string
	fenceTTL     time.Duration
	lockKey      func(string) string
	usualKeys    bool // lockKey is the default
	lanes        int
	sharded      bool
	clock        quorum.Clock       // of its tokens, in case a failover sets the server's clock back
	suspension   suspensionDetector // of its leases
	server       pipeline.Caller
	retries      int              // of an attempt
	fitness      *fitness         // nil with AllowEviction
	agreement    *lanes.Agreement // nil if RedisKey names the locks
	subscription *subscription.Subscription
	pending      *backlog.Backlog // releases, and attempts to give back
	late         lateReleases
}

// NewSingle returns a Locker on the Redis of client. The caller still owns the client, and closes it after the Locker.
// NewSingle returns an error if client is nil or a [redis.Ring]: when a server is down, a ring sends its callers to
// another one, where held keys seem free.
//
// The client should have ContextTimeoutEnabled. Otherwise, while a server hangs, later callers stay queued for
// ReadTimeout. With any client an attempt ends with its context, and what the server grants later is given back.
func NewSingle(client redis.UniversalClient, opts SingleOptions) (*Single, error) {
	if err := errors.Join(validateClient(client), opts.Validate()); err != nil {
		return nil, err
	}
	client, made, err := inNamespace(client, opts.Namespace)
	if err != nil {
		return nil, err
	}
	inLanes, err := lanes.On(client, opts.Lanes)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	usualKeys := opts.RedisKey == nil
	if opts.Lanes > 0 {
		opts.RedisKey = lockwire.LockKeyIn(inLanes)
	}
	setDefaults(&opts.Label, &opts.FenceTTL, &opts.RedisKey)
	s := &Single{
		client: client, label: opts.Label, fenceTTL: opts.FenceTTL, lockKey: opts.RedisKey, usualKeys: usualKeys, lanes: opts.Lanes,
	}
	// A plain client talks to one server. Any other kind (a cluster client, a wrapper) may talk to several, so each call
	// has the keys of one slot only.
	if made {
		s.conn = client
	}
	_, plain := client.(*redis.Client)
	s.sharded = !plain
	s.server = pipeline.To(client, pipeline.Options{Leaders: singleLeaders, Timeout: singleTimeout})
	s.retries = retriesOf(client)
	s.subscription, s.pending = subscription.New(client), newBacklog()
	if usualKeys {
		s.agreement = lanes.AgreementOn(client, inLanes)
	}
	if !opts.AllowEviction {
		s.fitness = &fitness{client: client, began: time.Now()}
	}
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

// retriesOf returns how often a client would repeat a command. Lock calls are sent once instead, and an unanswered
// attempt is given back and made again.
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

// Close ends the watches. It waits up to 5 s for unanswered releases and for attempts that are being undone, and then
// stops repeating them. Keep the client open until Close returns. Leases stay valid and can be released, but an
// unanswered release is repeated for 1 s at most. New attempts fail with [redis.ErrClosed].
func (s *Single) Close() error { return s.closeBy(time.Now().Add(releaseTimeout)) }

func (s *Single) closeBy(deadline time.Time) error {
	s.pending.Wait(context.Background(), min(releaseTimeout, leasing.Until(deadline)))
	s.pending.Close()
	err := s.subscription.Close()
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	return err
}

// RedisKeys returns the Redis keys of a key's lock and of the subscription to its release, which exists while callers
// wait for it. Both are empty if RedisKey makes an unusable name, for which Acquire returns an error.
func (s *Single) RedisKeys(key string) (lock, notify string) {
	redisKeys, err := lockwire.RedisKeys([]string{key}, s.lockKey)
	if err != nil {
		return "", ""
	}
	return redisKeys[0], redisKeys[2]
}

// Watch watches for releases of the keys: see [Watcher].
func (s *Single) Watch(_ context.Context, keys []string) (<-chan struct{}, func(), error) {
	released, notify := subscription.NewNotifier()
	drop, err := s.subscription.Add(lockwire.Channels(keys, s.lockKey), notify)
	if err != nil {
		return nil, nil, err
	}
	return released, sync.OnceFunc(drop), nil
}

// part is a subset of an attempt's keys that one script call can take.
type part struct {
	keys      []string
	redisKeys []string         // lock, fence counter and subscription of each
	acquire   pipeline.Command // the call that takes them
	asked     outcome          // of this call
}

// parts divides the keys of an attempt: into one part if they are on one server or in one slot, otherwise into one part
// for each key.
func (s *Single) parts(keys []string) ([]part, error) {
	redisKeys, err := lockwire.RedisKeys(keys, s.lockKey)
	if err != nil {
		return nil, err
	}
	if err := s.untagged(redisKeys); err != nil {
		return nil, err
	}
	if !s.sharded || len(keys) == 1 || lockwire.InOneSlot(redisKeys) {
		return []part{{keys: keys, redisKeys: redisKeys}}, nil
	}
	parts := make([]part, len(keys))
	for i := range keys {
		parts[i] = part{keys: keys[i : i+1], redisKeys: redisKeys[3*i : 3*i+3]}
	}
	return parts, nil
}

func (s *Single) lateReleases() *lateReleases { return &s.late }
