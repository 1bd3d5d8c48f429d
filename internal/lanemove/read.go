package lanemove

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
)

// task is one that is to be moved.
type task struct {
	note

	id     string
	fields fields
	there  fields        // as they are in the lane
	unique time.Duration // how long its uniqueness lock lives; 0 if it has none
}

func (t *task) from(queue string) line.Task { return line.Task{Queue: queue, ID: t.id} }
func (t *task) in() line.Task               { return line.Task{Queue: t.to, ID: t.id} }

// waits returns how long the timer of a task still runs.
func (t *task) waits() time.Duration {
	due, _ := strconv.ParseFloat(t.score, 64) // Redis has made it
	return max(time.Until(time.Unix(int64(due), 0)), 0)
}

// byPlace returns tasks of the state retry in the order in which they wait for their keys, and the others behind them.
func (m *mover) byPlace(ctx context.Context, ids []string) ([]string, error) {
	type waiter struct {
		id    string
		waits bool
		place int64
	}
	all := make([]waiter, 0, len(ids))
	for some := range slices.Chunk(ids, readSize) {
		replies := make([]*redis.StringCmd, len(some))
		_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range some {
				replies[i] = p.HGet(ctx, asynqwire.Hash(m.Queue, id), line.WaitField)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		for i, id := range some {
			w := line.ParseWait(replies[i].Val())
			all = append(all, waiter{id, len(w.Keys) > 0, w.Place})
		}
	}
	slices.SortStableFunc(all, func(a, b waiter) int {
		switch {
		case a.waits != b.waits:
			return map[bool]int{true: -1, false: 1}[a.waits]
		default:
			return cmp.Compare(a.place, b.place)
		}
	})
	for i := range all {
		ids[i] = all[i].id
	}
	return ids, nil
}

// readSize is how many tasks are read in one round trip.
const readSize = 500

// read returns the fields of tasks; none of one that is gone.
func (m *mover) read(ctx context.Context, ids []string) ([]fields, error) {
	replies := make([]*redis.MapStringStringCmd, len(ids))
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = p.HGetAll(ctx, asynqwire.Hash(m.Queue, id))
		}
		return nil
	})
	all := make([]fields, len(ids))
	for i := range replies {
		all[i] = replies[i].Val()
	}
	return all, err
}

// prepared returns the tasks with these fields that go into lanes, as they are there, and notes which stay.
func (m *mover) prepared(ctx context.Context, state string, ids []string, all []fields) (going []*task, stay int, err error) {
	for i, f := range all {
		if len(f) == 0 || f[asynqwire.StateField] != state {
			continue // it has run, or an operator was faster
		}
		lane, why := laneOf(m.names, f)
		t := &task{note: note{state: state, position: none}, id: ids[i], fields: f}
		if why == "" {
			t.to = m.names.Queue(m.Queue, lane)
			if !t.translate(m.names, m.Queue) {
				why = IsOdd
			}
		}
		if why != "" {
			m.stays[t.id] = why
			stay++
			continue
		}
		going = append(going, t)
	}
	return going, stay, m.readLines(ctx, going)
}

// translate finds out what a task is in its lane.
func (t *task) translate(names line.Names, queue string) (ok bool) {
	t.there, ok = inLane(names, t.fields, queue, t.to)
	return ok
}

// readLines reads where tasks stand in their sequences, and how long their uniqueness locks live.
func (m *mover) readLines(ctx context.Context, all []*task) error {
	positions, locks, owners := make([]*redis.FloatCmd, len(all)), make([]*redis.DurationCmd, len(all)), make([]*redis.StringCmd, len(all))
	_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range all {
			if sequence, _, ok := strings.Cut(t.there[line.SequenceField], " "); ok && t.position == none {
				positions[i] = p.ZScore(ctx, sequence, t.from(m.Queue).Entry())
			}
			if lock := t.fields[asynqwire.UniqueField]; lock != "" {
				locks[i], owners[i] = p.PTTL(ctx, lock), p.Get(ctx, lock)
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i, t := range all {
		if positions[i] != nil && positions[i].Err() == nil {
			t.position = positionOf(positions[i].Val())
		}
		if owners[i] != nil && owners[i].Val() == t.id {
			t.unique = locks[i].Val()
		}
	}
	return nil
}
