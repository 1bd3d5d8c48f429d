// Package cost measures how much Redis memory locks and waiting tasks take.
package cost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/tasks"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/locking"
)

// The columns of memory.
const (
	bytesEach = "bytes each"
	keysEach  = "Redis keys each"
)

// The rows of memory.
const (
	heldKey    = "held key"
	idleKey    = "released key, until FenceTTL"
	forgotten  = "released key, after FenceTTL"
	bareTask   = "task in asynq's retry set"
	parkedTask = "parked task"
	fifoTask   = "parked task, FIFO"
	beyond     = ", beyond asynq's own"
)

const (
	items        = 10_000
	memoryRounds = 2 // because the figures hardly vary
	shortFence   = 3 * time.Second
	warmKeys     = 64
	settleBound  = 30 * time.Second
	shrinkBound  = 3 * time.Second
	noise        = 5.0 // bytes of each item that the server may keep for itself, such as room for connections
)

// Measure measures what each of many keys and tasks takes: the difference of used_memory before and after. What was
// measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) error {
	if !env.Wants("cost-memory") {
		return nil
	}
	t := env.Table("cost-memory", "memory of Redis")
	rows := []string{heldKey, idleKey, forgotten, bareTask, parkedTask, parkedTask + beyond, fifoTask, fifoTask + beyond}
	for _, row := range rows {
		t.AddRow(row) // in this order
	}
	for round := range min(env.Rounds, memoryRounds) {
		for _, step := range []func(context.Context, *store) error{
			held, expired,
			waiting(bareTask, tasks.RetryUncounted), waiting(parkedTask, tasks.RailtokenParks),
			waiting(fifoTask, tasks.RailtokenFIFOParks),
		} {
			if err := withStore(ctx, env, t, step); err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
		}
		for _, name := range []string{parkedTask, fifoTask} {
			for _, column := range []string{bytesEach, keysEach} {
				t.Add(name+beyond, column, t.Of(name, column)[round]-t.Of(bareTask, column)[round])
			}
		}
	}
	return nil
}

// store is a redis-server whose memory is looked at.
type store struct {
	at          *server.Server
	table       *results.Table
	n           int // items
	bytes, keys float64
}

func withStore(ctx context.Context, env *measure.Env, t *results.Table, step func(context.Context, *store) error) error {
	at, err := server.Start(ctx, env.Dir)
	if err != nil {
		return err
	}
	defer at.Kill()
	s := &store{at: at, table: t, n: env.Share(items, 100)}
	if err := s.prime(ctx); err != nil {
		return err
	}
	if s.bytes, s.keys, err = usage.Memory(ctx, at.Probe()); err != nil {
		return err
	}
	return step(ctx, s)
}

// prime lets the server get what it keeps for itself once it has had clients and scripts.
func (s *store) prime(ctx context.Context) error {
	few := store{at: s.at, n: warmKeys}
	err := few.lockAll(ctx, locking.SingleOptions{}, locking.Options{}, lockall.GiveBack(ctx))
	if err == nil {
		err = s.alone(ctx)
	}
	if err == nil {
		err = s.at.Probe().FlushAll(ctx).Err()
	}
	return err
}

// alone returns when only the probe is connected.
func (s *store) alone(ctx context.Context) error {
	return until(ctx, settleBound, "the load has left", func() (bool, error) {
		info, err := s.at.Probe().InfoMap(ctx, "clients").Result()
		return info["Clients"]["connected_clients"] == "1", err
	})
}

// look returns what each item takes.
func (s *store) look(ctx context.Context) (bytes, keys float64, err error) {
	bytes, keys, err = usage.Memory(ctx, s.at.Probe())
	return (bytes - s.bytes) / float64(s.n), (keys - s.keys) / float64(s.n), err
}

// add adds what each item takes now, when only the probe is connected.
func (s *store) add(ctx context.Context, row string) error {
	if err := s.alone(ctx); err != nil {
		return err
	}
	bytes, keys, err := s.look(ctx)
	if err == nil {
		s.table.Add(row, bytesEach, bytes)
		s.table.Add(row, keysEach, keys)
	}
	return err
}

// held takes keys, and looks while the leases are held and the connections are closed.
func held(ctx context.Context, s *store) error {
	var (
		mu     sync.Mutex
		leases []*locking.Lease
	)
	err := s.lockAll(ctx, locking.SingleOptions{}, locking.Options{}, func(l *locking.Lease) error {
		mu.Lock()
		defer mu.Unlock()
		leases = append(leases, l)
		return nil
	})
	if err == nil {
		err = s.add(ctx, heldKey)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	for _, l := range leases {
		_ = l.Release(ctx) // in vain: the server is about to end
	}
	return err
}

// expired takes keys, gives them back, and waits until they are forgotten. What is left then is the figure.
func expired(ctx context.Context, s *store) error {
	opts := locking.Options{TTL: time.Second, MaxHold: 2 * time.Second}
	err := s.lockAll(ctx, locking.SingleOptions{FenceTTL: shortFence}, opts, lockall.GiveBack(ctx))
	if err == nil {
		err = s.add(ctx, idleKey)
	}
	if err == nil {
		err = until(ctx, settleBound, "Redis has removed all keys", func() (bool, error) {
			_, keys, err := s.look(ctx)
			return keys <= 0, err
		})
	}
	if err == nil {
		err = until(ctx, shrinkBound, "Redis has shrunk its tables", func() (bool, error) {
			bytes, _, err := s.look(ctx)
			return bytes <= noise, err
		})
	}
	if err != nil && !errors.Is(err, errUntil) {
		return err
	}
	return s.add(ctx, forgotten)
}

// waiting lets tasks wait for a key that another one holds: in asynq's retry set, until their timers come in an hour or
// more.
func waiting(row string, c tasks.Contestant) func(context.Context, *store) error {
	return func(ctx context.Context, s *store) error {
		stop, err := tasks.StartHeld(ctx, s.at.Addr(), c, s.n)
		if err == nil {
			err = until(ctx, settleBound, "all tasks wait", func() (bool, error) {
				in, err := s.at.Probe().ZCard(ctx, "asynq:{default}:retry").Result()
				return in >= int64(s.n), err
			})
			err = errors.Join(err, stop())
		}
		if err == nil {
			err = s.add(ctx, row)
		}
		return err
	}
}

// lockAll takes each of n keys.
func (s *store) lockAll(ctx context.Context, single locking.SingleOptions, opts locking.Options,
	then func(*locking.Lease) error,
) error {
	return lockall.Each(ctx, s.at.Addr(), lockall.Keys(s.n), single, opts, then)
}

var errUntil = errors.New("it takes too long until")

// until polls until it is done, for a bounded time.
func until(ctx context.Context, bound time.Duration, what string, done func() (bool, error)) error {
	for end := time.Now().Add(bound); ; {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w %s", errUntil, what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
