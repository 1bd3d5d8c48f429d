package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
)

// Awaited tells the reports of a worker which tasks wait: see [holdings.Parked].
type Awaited struct{ *Engine }

// Count returns how many tasks are parked.
func (a Awaited) Count(ctx context.Context) (int, error) {
	indexes := a.names.Indexes()
	counts := make([]*redis.IntCmd, len(indexes))
	_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, index := range indexes {
			counts[n] = p.ZCard(ctx, index)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count parked tasks: %w", err)
	}
	all := 0
	for _, n := range counts {
		all += int(n.Val())
	}
	return all, nil
}

// Waiting returns for each key how many tasks wait for it, and the longest wait.
func (a Awaited) Waiting(ctx context.Context, keys []string) (map[string]holdings.Point, error) {
	counts, first := make([]*redis.IntCmd, len(keys)), make([]*redis.ZSliceCmd, len(keys))
	_, err := a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, key := range keys {
			counts[n], first[n] = p.ZCard(ctx, a.names.Waiters(key)), p.ZRangeWithScores(ctx, a.names.Waiters(key), 0, 1)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the waiters of keys: %w", err)
	}
	found := make(map[string]holdings.Point, len(keys))
	for n, key := range keys {
		p := holdings.Point{Waiting: int(counts[n].Val())}
		for _, early := range first[n].Val() { // the first may have overtaken an older one
			p.Oldest = max(p.Oldest, time.Since(JoinedAt(early.Score)))
		}
		found[key] = p
	}
	return found, nil
}

// Awaited returns the keys of the n tasks that were parked first, those of most tasks first.
func (a Awaited) Awaited(ctx context.Context, n int) ([]string, error) {
	parked, err := a.Oldest(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("list parked tasks: %w", err)
	}
	waits := make([]*redis.StringCmd, len(parked))
	_, err = a.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, z := range parked {
			entry, _ := z.Member.(string)
			t, _ := ParseEntry(entry) // what is no entry is no task
			waits[n] = p.HGet(ctx, t.Hash(), WaitField)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read what tasks wait for: %w", err)
	}
	tasks := map[string]int{}
	for _, wait := range waits {
		if key, ok := ParseWait(wait.Val()).Key(); ok {
			tasks[key]++
		}
	}
	return slices.SortedFunc(maps.Keys(tasks), func(a, b string) int {
		return cmp.Or(cmp.Compare(tasks[b], tasks[a]), cmp.Compare(a, b))
	}), nil
}

// Oldest returns the entries of the n tasks that were parked first, with when they were (us).
func (e *Engine) Oldest(ctx context.Context, n int) ([]redis.Z, error) {
	indexes := e.names.Indexes()
	found := make([]*redis.ZSliceCmd, len(indexes))
	_, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, index := range indexes {
			found[i] = p.ZRangeWithScores(ctx, index, 0, int64(n)-1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []redis.Z
	for _, some := range found {
		all = append(all, some.Val()...)
	}
	slices.SortStableFunc(all, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	return all[:min(n, len(all))], nil
}
