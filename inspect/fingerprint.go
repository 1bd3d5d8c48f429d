package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lockwire"
)

// Fingerprints returns a text for each key. It changes when [Inspector.Look] with this n would show another holder, other waiters
// or another sequence; what only passes, such as the time that is left, does not change it, and neither do reports of workers.
//
// It is for watching many keys: it sends one command per key to each lock server and two per key to the Redis of the tasks, and a
// third one for keys with more than n waiters.
func (i *Inspector) Fingerprints(ctx context.Context, keys []string, n int) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	locks := make([]string, len(keys))
	for k, key := range keys {
		names, err := lockwire.KeysOf(key, i.opts.RedisKey)
		if err != nil {
			return nil, err
		}
		locks[k] = names.Lock
	}
	held := make([][]string, len(i.servers))
	var all sync.WaitGroup
	for s := range i.servers {
		all.Go(func() { held[s] = i.servers[s].owners(ctx, locks) })
	}
	waiting, err := i.lines(ctx, keys, n)
	all.Wait()
	if err != nil {
		return nil, err
	}
	prints := make([]string, len(keys))
	for k := range keys {
		var b strings.Builder
		for s := range held {
			fmt.Fprintf(&b, "%q ", held[s][k])
		}
		b.WriteString(waiting[k])
		prints[k] = b.String()
	}
	return prints, nil
}

// owners returns the owners of locks on a server; for each "?" if it does not answer.
func (s *server) owners(ctx context.Context, names []string) []string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	values := make([]*redis.StringCmd, len(names))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, name := range names {
			values[n] = p.Get(ctx, name)
		}
		return nil
	})
	owners := make([]string, len(names))
	for n, v := range values {
		switch {
		case v.Err() == nil:
			owners[n] = v.Val()
		case err != nil && !errors.Is(v.Err(), redis.Nil):
			owners[n] = "?"
		}
	}
	return owners
}

// lines returns for each key a text of the first n of its waiters and of its sequence.
func (i *Inspector) lines(ctx context.Context, keys []string, n int) ([]string, error) {
	waiters, sequences := make([]*redis.ZSliceCmd, len(keys)), make([]*redis.ZSliceCmd, len(keys))
	_, err := i.opts.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for k, key := range keys {
			// One more than is shown: the number of those behind is shown, too.
			waiters[k] = p.ZRangeWithScores(ctx, i.names.Waiters(key), 0, int64(n))
			sequences[k] = p.ZRangeWithScores(ctx, i.names.Sequence(key), 0, int64(n))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: read the waiters of keys: %w", err)
	}
	texts := make([]string, len(keys))
	for k := range keys {
		texts[k] = fmt.Sprintf("%v %v", waiters[k].Val(), sequences[k].Val())
	}
	return texts, i.countMore(ctx, keys, waiters, n, texts)
}

// countMore adds the number of waiters of those keys that have more than n.
func (i *Inspector) countMore(ctx context.Context, keys []string, waiters []*redis.ZSliceCmd, n int, texts []string) error {
	counts := make([]*redis.IntCmd, len(keys))
	_, err := i.opts.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for k, key := range keys {
			if len(waiters[k].Val()) > n {
				counts[k] = p.ZCard(ctx, i.names.Waiters(key))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("inspect: count the waiters of keys: %w", err)
	}
	for k, c := range counts {
		if c != nil {
			texts[k] += fmt.Sprint(" ", c.Val())
		}
	}
	return nil
}
