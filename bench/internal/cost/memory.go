package cost

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/tasks"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/locking"
)

// The columns, and the rows that are named more than once.
const (
	bytesEach  = "bytes each"
	keysEach   = "Redis keys each"
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

// memory measures what each of many keys and tasks takes: the difference of used_memory before and after.
func memory(ctx context.Context, env *measure.Env) error {
	steps := []func(context.Context, *store) error{
		held, expired, waiting(bareTask, tasks.RetryUncounted),
		waiting(parkedTask, tasks.Railtoken), waiting(fifoTask, tasks.RailtokenFIFO),
	}
	return env.Measure(ctx, measure.Contest{
		Name: "cost-memory", Title: "memory of Redis", Measure: func(ctx context.Context, t *results.Table) error {
			for range min(env.Rounds, memoryRounds) {
				for _, step := range steps {
					if err := withStore(ctx, env, t, step); err != nil {
						return err
					}
				}
			}
			return nil
		},
	})
}

// store is a redis-server whose memory is looked at.
type store struct {
	at          *server.Server
	table       *results.Table
	n           int     // items
	bytes, keys float64 // before them
}

func withStore(ctx context.Context, env *measure.Env, t *results.Table, step func(context.Context, *store) error) error {
	at, err := server.Start(ctx, env.Dir)
	if err != nil {
		return err
	}
	defer at.Kill()
	s := &store{at: at, table: t, n: env.Share(items, 100)}
	// The server gets what it keeps for itself once it has had clients and scripts.
	err = lockEach(ctx, at.Addr(), lockKeys(warmKeys), locking.SingleOptions{}, locking.Options{}, nil)
	if err == nil {
		err = s.alone(ctx)
	}
	if err == nil {
		err = at.Probe().FlushAll(ctx).Err()
	}
	if err == nil {
		s.bytes, s.keys, err = measure.Memory(ctx, at.Probe())
	}
	if err != nil {
		return err
	}
	return step(ctx, s)
}

// alone returns when only the probe is connected.
func (s *store) alone(ctx context.Context) error {
	return within(ctx, settleBound, func() error {
		info, err := s.at.Probe().InfoMap(ctx, "clients").Result()
		if n := info["Clients"]["connected_clients"]; err == nil && n != "1" {
			err = fmt.Errorf("%s clients are connected", n)
		}
		return err
	})
}

// look returns what each item takes.
func (s *store) look(ctx context.Context) (bytes, keys float64, err error) {
	bytes, keys, err = measure.Memory(ctx, s.at.Probe())
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
	keep := func(l *locking.Lease) {
		mu.Lock()
		defer mu.Unlock()
		leases = append(leases, l)
	}
	err := lockEach(ctx, s.at.Addr(), lockKeys(s.n), locking.SingleOptions{}, locking.Options{}, keep)
	if err == nil {
		err = s.add(ctx, "held key")
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	for _, l := range leases {
		_ = l.Release(ctx) // in vain: the server is about to end
	}
	return err
}

// expired takes keys, gives them back, and waits until they are forgotten and Redis has shrunk its tables. What is left
// then is the figure.
func expired(ctx context.Context, s *store) error {
	opts := locking.Options{TTL: time.Second, MaxHold: 2 * time.Second}
	err := lockEach(ctx, s.at.Addr(), lockKeys(s.n), locking.SingleOptions{FenceTTL: shortFence}, opts, nil)
	if err == nil {
		err = s.add(ctx, "released key, until FenceTTL")
	}
	if err != nil {
		return err
	}
	left := func(most float64) func() error {
		return func() error {
			bytes, keys, err := s.look(ctx)
			if err == nil && (keys > 0 || bytes > most) {
				err = fmt.Errorf("each still takes %v bytes and %v keys", bytes, keys)
			}
			return err
		}
	}
	_ = within(ctx, settleBound, left(math.Inf(1)))
	_ = within(ctx, shrinkBound, left(noise))
	return s.add(ctx, "released key, after FenceTTL")
}

// waiting lets tasks wait for a key that another one holds: in asynq's retry set, until their timers come in an hour or
// more. For those that railtoken parks it also adds what they take beyond asynq's own, which were measured before.
func waiting(row string, c tasks.Contestant) func(context.Context, *store) error {
	return func(ctx context.Context, s *store) error {
		stop, err := tasks.StartHeld(ctx, s.at.Addr(), c, s.n)
		if err != nil {
			return err
		}
		err = within(ctx, settleBound, func() error {
			in, err := s.at.Probe().ZCard(ctx, "asynq:{default}:retry").Result()
			if err == nil && in < int64(s.n) {
				err = fmt.Errorf("%d of %d tasks wait", in, s.n)
			}
			return err
		})
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		if err := s.add(ctx, row); err != nil || row == bareTask {
			return err
		}
		for _, column := range []string{bytesEach, keysEach} {
			parked, bare := s.table.Of(row, column), s.table.Of(bareTask, column)
			s.table.Add(row+beyond, column, parked[len(parked)-1]-bare[len(bare)-1])
		}
		return nil
	}
}

// within looks until there is no error, for a bounded time.
func within(ctx context.Context, bound time.Duration, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return process.Poll(ctx, nil, look)
}
