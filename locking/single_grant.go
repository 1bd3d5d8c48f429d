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
)

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
	return slices.Contains(transient, word) || reply == "ERR max number of clients reached" ||
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
