package lanemove

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/pipeline"
)

var (
	//go:embed lua/adopt.lua
	adoptSource string

	adoptScript = redis.NewScript(adoptSource)
)

// adopt gives the sequences of the queue's keys the names that they have with lanes. Their tasks stay where they are, in whichever
// queues. The note in a task comes before its entry: an entry whose task does not name the sequence would be left over.
func (m *mover) adopt(ctx context.Context) error {
	keys := map[string]bool{}
	for _, state := range states {
		if state == archivedState {
			continue // it has left its sequence
		}
		ids, err := m.all(ctx, state)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(ids, readSize) {
			marks := make([]*redis.StringCmd, len(some))
			_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, id := range some {
					marks[i] = p.HGet(ctx, asynqwire.Hash(m.Queue, id), line.SequenceField)
				}
				return nil
			})
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			for _, mark := range marks {
				if key, ok := line.SequenceOf(mark.Val()); ok {
					keys[key] = true
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := m.retried(ctx, func() error { return m.adoptOne(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

// all returns the tasks of a state.
func (m *mover) all(ctx context.Context, state string) (ids []string, err error) {
	for range mostRounds {
		some, err := m.list(ctx, state, len(ids))
		ids = append(ids, some...)
		if err != nil || len(some) < roundSize {
			return ids, err
		}
	}
	return ids, nil
}

// adoptOne does so for one sequence.
func (m *mover) adoptOne(ctx context.Context, key string) error {
	old, now := (line.Names{}).Sequence(key), m.names.Sequence(key)
	entries, err := m.client.ZRangeWithScores(ctx, old, 0, -1).Result()
	if err != nil || len(entries) == 0 {
		return err
	}
	calls := make([]pipeline.ScriptCall, len(entries))
	for i, z := range entries {
		entry, _ := z.Member.(string)
		t, _ := line.ParseEntry(entry) // what is no entry is of a task that is gone
		calls[i] = pipeline.ScriptCall{Script: adoptScript, Keys: []string{t.Hash()}, Args: []any{old, now}}
	}
	var mine []redis.Z
	for i, reply := range pipeline.RunScripts(ctx, m.client, calls) {
		n, err := reply.Int()
		if err != nil {
			return err
		}
		if n == 1 {
			mine = append(mine, entries[i])
		}
	}
	_, err = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if len(mine) > 0 {
			p.ZAddNX(ctx, now, mine...)
			p.Persist(ctx, now)
		}
		return nil
	})
	if err != nil {
		return err
	}
	gone := make([]any, len(entries))
	for i, z := range entries {
		gone[i] = z.Member
	}
	return m.client.ZRem(ctx, old, gone...).Err()
}

// positionOf returns a position as a script is told.
func positionOf(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }
