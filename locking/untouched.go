package locking

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/quorum"
)

var snapshotScript = redis.NewScript(lockwire.Snapshot)

// Untouched looks at the lock and the fence counter of each key. The counter is the one that the lease has left there:
// every grant to another owner, and every deposition, raises it, and nothing lowers it (docs/design.md, 3.4). A program
// without fence counters leaves no trace.
func (g *singleGrant) Untouched(ctx context.Context) (bool, error) {
	tops := g.tops
	for _, p := range g.parts {
		ours, err := leftAlone(ctx, g.single.client, p.redisKeys, g.owner, tops[:len(p.keys)])
		if err != nil || !ours {
			return false, err
		}
		tops = tops[len(p.keys):]
	}
	return true, nil
}

// Untouched asks every node. Another owner would have had a majority, so it is enough that a majority was left alone.
func (g *redlockGrant) Untouched(ctx context.Context) (bool, error) {
	g.mu.Lock()
	tokens := g.tokens
	g.mu.Unlock()
	if tokens == nil {
		return false, nil // never committed
	}
	type answer struct {
		ours bool
		err  error
	}
	nodes := g.redlock.nodes
	answers := make(chan answer, len(nodes))
	for _, n := range nodes {
		go func() {
			ours, err := leftAlone(ctx, n.client, g.redisKeys, g.owner, tokens)
			answers <- answer{ours, err}
		}()
	}
	alone, touched := 0, 0
	var errs []error
	for range nodes {
		switch a := <-answers; {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.ours:
			alone++
		default:
			touched++
		}
	}
	majority := quorum.Of(len(nodes))
	switch {
	case alone >= majority:
		return true, nil
	case touched > len(nodes)-majority || len(errs) == 0:
		return false, nil
	default:
		return false, errors.Join(errs...)
	}
}

// leftAlone looks at the locks of one owner and at their counters on one server. redisKeys has the lock, fence counter
// and subscription of each key.
func leftAlone(
	ctx context.Context, client redis.UniversalClient, redisKeys []string, owner string, tops []int64,
) (bool, error) {
	names := slices.Clone(redisKeys)
	for i := len(names) - 1; i > 0; i -= 3 {
		names = slices.Delete(names, i, i+1)
	}
	values, err := snapshotScript.Run(ctx, client, names).Slice()
	if err != nil {
		return false, err
	}
	for i, top := range tops {
		lock, counter := values[2*i], values[2*i+1]
		if lock != nil && lock != owner {
			return false, nil
		}
		text, _ := counter.(string)
		text, _, _ = strings.Cut(text, " ") // marks of abandoned attempts
		if text != strconv.FormatInt(top, 10) {
			return false, nil
		}
	}
	return true, nil
}
