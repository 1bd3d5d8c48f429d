package locking

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

// DefaultFenceTTL is how long a key's fence counter is kept after its last lease.
const DefaultFenceTTL = time.Hour

// cleanupTimeout bounds the taking back of an attempt whose outcome is not known.
const cleanupTimeout = time.Second

var (
	//go:embed lua/acquire.lua
	acquireSource string
	//go:embed lua/renew.lua
	renewSource string
	//go:embed lua/release.lua
	releaseSource string

	acquireScript = redis.NewScript(acquireSource)
	renewScript   = redis.NewScript(renewSource)
	releaseScript = redis.NewScript(releaseSource)
)

// SingleOptions configures a [Single]. The zero value has every default.
type SingleOptions struct {
	// Label names this process to those who are refused, when an attempt gives no label of its own. [DefaultLabel] when empty.
	Label string

	// FenceTTL is how long a key's fence counter outlives its last lease. It must be longer than MaxHold of every attempt;
	// 1 h when zero. After it a new counter begins at the server's clock, so tokens still grow as long as that clock does.
	FenceTTL time.Duration

	// KeyName returns the full name of the Redis string that is the lock of a business key, for taking the same locks as
	// another program does. It must be injective, a name with a brace must have a hash tag, and no name may be another one
	// with ":fence" or ":interest" behind it, which are the counter and the mark of that one. When nil, the name is
	// "railtoken:lock:{" + the key with unsafe bytes percent-encoded + "}".
	KeyName func(key string) string
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
// It needs Redis 6.2 or later. It is safe for use by many goroutines at the same time.
type Single struct {
	client  redis.UniversalClient
	label   string
	fence   time.Duration
	name    func(string) string
	sharded bool
	notices *notices
}

// NewSingle returns a Locker on the Redis that client is connected to. The client stays the caller's: close it after the
// Locker. It panics when client is nil.
//
// Give it a client with ContextTimeoutEnabled. Any other waits for a server that hangs for as long as its ReadTimeout says, whatever
// the context of the call says; a lease ends on time all the same.
func NewSingle(client redis.UniversalClient, opts SingleOptions) (*Single, error) {
	if client == nil {
		panic("locking: NewSingle needs a Redis client")
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Single{client: client, label: cleanLabel(opts.Label), fence: opts.FenceTTL, name: opts.KeyName}
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
	s.notices = newNotices(client)
	return s, nil
}

// Close ends the watches on releases. Leases that are held stay valid and can be released.
func (s *Single) Close() error { return s.notices.close() }

// Acquire makes one attempt: see [Locker].
func (s *Single) Acquire(ctx context.Context, names []string, opts Options) (*Lease, error) {
	names, opts, err := Prepare(names, opts)
	if err != nil {
		return nil, err
	}
	if opts.MaxHold >= s.fence {
		return nil, fmt.Errorf("locking: MaxHold is %v, FenceTTL %v: a fence counter must outlive its lease: lower MaxHold or raise FenceTTL",
			opts.MaxHold, s.fence)
	}
	label := s.label
	if opts.Label != "" {
		label = cleanLabel(opts.Label)
	}
	began := Now()
	g := &singleGrant{single: s, owner: newOwner(label, time.Now()), tokens: make([]int64, 0, len(names))}
	parts, err := s.parts(names)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		g.parts = append(g.parts, part)
		if err := g.acquire(ctx, part, opts); err != nil {
			return nil, g.takeBack(ctx, err)
		}
	}
	lease, err := NewLease(g, names, opts, began)
	if err != nil {
		return nil, g.takeBack(ctx, err)
	}
	return lease, nil
}

// Watch returns a watch on the release of any of the keys: see [Watcher].
func (s *Single) Watch(_ context.Context, names []string) (*Watch, error) {
	channels := make([]string, len(names))
	for i, name := range names {
		channels[i] = s.name(name)
	}
	return s.notices.watch(channels)
}

// part is some of an attempt's keys: those that one script can take at once.
type part struct {
	names []string // business keys
	redis []string // lock, fence counter and interest mark of each
}

// parts divides the keys of an attempt: all in one when they lie on one server or in one slot, else each for itself.
func (s *Single) parts(names []string) ([]part, error) {
	all := part{names: names, redis: make([]string, 0, 3*len(names))}
	oneSlot := true
	for _, name := range names {
		lock := s.name(name)
		base := lock
		if keys.Tag(lock) == lock {
			if strings.ContainsAny(lock, "{}") {
				return nil, fmt.Errorf("locking: KeyName made %q of key %q: a name with a brace must have a hash tag, such as {%s}",
					lock, name, keys.Encode(name))
			}
			base = "{" + lock + "}"
		}
		all.redis = append(all.redis, lock, base+":fence", base+":interest")
		oneSlot = oneSlot && keys.Slot(lock) == keys.Slot(all.redis[0])
	}
	if !s.sharded || oneSlot {
		return []part{all}, nil
	}
	parts := make([]part, len(names))
	for i := range names {
		parts[i] = part{names: names[i : i+1], redis: all.redis[3*i : 3*i+3]}
	}
	return parts, nil
}

// lockName returns the Redis key of a business key's lock.
func lockName(key string) string { return "railtoken:lock:{" + keys.Encode(key) + "}" }

// singleGrant is one acquisition on a [Single].
type singleGrant struct {
	single *Single
	owner  string
	parts  []part
	tokens []int64
}

// acquire takes one part and notes its tokens.
func (g *singleGrant) acquire(ctx context.Context, p part, opts Options) error {
	reply, err := acquireScript.Run(ctx, g.single.client, p.redis, g.owner,
		ms(opts.TTL), ms(g.single.fence), ms(opts.Interest)).Slice()
	if err != nil {
		return &OpError{Op: "acquire", Keys: p.names, Err: classify(ctx, err)}
	}
	tokens, held, err := parseAcquire(reply, p.names)
	if err != nil {
		return err
	}
	if held != nil {
		return held
	}
	g.tokens = append(g.tokens, tokens...)
	return nil
}

// transient are the first words of the error replies of a Redis that may serve again soon.
var transient = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY", "MISCONF", "NOREPLICAS"}

// classify makes err match ErrUnavailable when trying again may help: not when the caller has ended the attempt, and not
// when the server has answered that it will not do this at all. A time-out of the connection looks like one of the caller's, so the
// caller's context decides which it is.
func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		return err
	}
	if reply, ok := errors.AsType[redis.Error](err); ok && !isTransient(reply.Error()) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isTransient reports whether an error reply is that of a server that may serve again soon. Before Redis 7 the reply of a command
// in a script is part of a longer one.
func isTransient(reply string) bool {
	word, rest, _ := strings.Cut(reply, " ")
	return slices.Contains(transient, word) ||
		word == "ERR" && slices.ContainsFunc(transient, func(w string) bool { return strings.Contains(rest, " -"+w+" ") })
}

// parseAcquire reads the reply of the acquire script: the tokens, or who holds a key.
func parseAcquire(reply []any, names []string) (tokens []int64, held *HeldError, err error) {
	bad := func() error {
		return &OpError{Op: "acquire", Keys: names, Err: fmt.Errorf("the server answered what the script cannot: %v", reply)}
	}
	if len(reply) == 0 {
		return nil, nil, bad()
	}
	if reply[0] == int64(1) {
		if len(reply) != 1+len(names) {
			return nil, nil, bad()
		}
		for _, r := range reply[1:] {
			text, _ := r.(string)
			token, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, nil, bad()
			}
			tokens = append(tokens, token)
		}
		return tokens, nil, nil
	}
	if len(reply) != 5 {
		return nil, nil, bad()
	}
	position, ok1 := reply[1].(int64)
	value, ok2 := reply[2].(string)
	remaining, ok3 := reply[3].(int64)
	counter, ok4 := reply[4].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || position < 1 || int(position) > len(names) {
		return nil, nil, bad()
	}
	held = &HeldError{Key: names[position-1]}
	held.Holder.Label, held.Holder.Since = parseOwner(value)
	held.Holder.Remaining = time.Duration(remaining) * time.Millisecond
	held.Holder.Fence, _ = strconv.ParseInt(counter, 10, 64) // 0 when another program wrote it
	return nil, held, nil
}

// takeBack releases what an attempt has taken before it failed, and returns why it failed.
func (g *singleGrant) takeBack(ctx context.Context, cause error) error {
	if len(g.parts) == 1 && errors.Is(cause, ErrHeld) {
		return cause // a refused script leaves nothing
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	g.each(func(_, _ int, p part) { _ = releaseScript.Run(ctx, g.single.client, p.redis, g.owner).Err() })
	return cause
}

// each calls f for every part, for all at the same time, so that a server that does not answer keeps no key on another one
// locked. It tells f the position of the part and that of its first key.
func (g *singleGrant) each(f func(i, first int, p part)) {
	if len(g.parts) == 1 {
		f(0, 0, g.parts[0])
		return
	}
	var wg sync.WaitGroup
	first := 0
	for i, p := range g.parts {
		at := first
		wg.Go(func() { f(i, at, p) })
		first += len(p.names)
	}
	wg.Wait()
}

// Fence returns the token that the acquire script gave.
func (g *singleGrant) Fence(_ context.Context, i int) (int64, error) { return g.tokens[i], nil }

// Renew extends every part.
func (g *singleGrant) Renew(ctx context.Context, ttl time.Duration) error {
	first := 0
	for _, p := range g.parts {
		args := []any{g.owner, ms(ttl), ms(g.single.fence)}
		for i := range p.names {
			args = append(args, g.tokens[first+i])
		}
		first += len(p.names)
		lost, err := renewScript.Run(ctx, g.single.client, p.redis, args...).Int()
		if err != nil {
			return &OpError{Op: "renew", Keys: p.names, Err: err}
		}
		if lost > 0 {
			return &LostError{Keys: p.names[lost-1 : lost], Reason: LossTaken}
		}
	}
	return nil
}

// Release deletes what is still this owner's, in every part whatever the others answer.
func (g *singleGrant) Release(ctx context.Context) (contended bool, err error) {
	errs, waited := make([]error, len(g.parts)), make([]bool, len(g.parts))
	g.each(func(i, first int, p part) {
		lost, contended, err := g.releasePart(ctx, p, g.tokens[first:first+len(p.names)])
		waited[i] = contended || err != nil
		switch {
		case err != nil:
			errs[i] = &OpError{Op: "release", Keys: p.names, Err: err}
		case lost > 0:
			errs[i] = &LostError{Keys: p.names[lost-1 : lost], Reason: LossTaken}
		}
	})
	return slices.Contains(waited, true), errors.Join(errs...)
}

// releasePart releases one part, and tries again for as long as ctx lasts: a key that stays locked stops its users for a TTL.
func (g *singleGrant) releasePart(ctx context.Context, p part, tokens []int64) (lost int, contended bool, err error) {
	args := []any{g.owner}
	for _, token := range tokens {
		args = append(args, token)
	}
	var last error // of the server or the connection: the end of ctx must not hide it
	operation := func() error {
		reply, err := releaseScript.Run(ctx, g.single.client, p.redis, args...).Int64Slice()
		if errors.Is(err, redis.ErrClosed) {
			return backoff.Permanent(err)
		}
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				last = err
			}
			return err
		}
		if len(reply) != 2 || reply[0] > int64(len(p.names)) {
			return backoff.Permanent(fmt.Errorf("the server answered what the script cannot: %v", reply))
		}
		lost, contended = int(reply[0]), reply[1] > 0
		return nil
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(releaseTimeout))
	err = backoff.Retry(operation, backoff.WithContext(wait, ctx))
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", cmp.Or(last, err))
	}
	return lost, contended, err
}

// ms returns d in whole milliseconds, rounded up, for Redis.
func ms(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
