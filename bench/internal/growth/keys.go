package growth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/locking"
)

const (
	keySlots  = 8
	keySlices = 8
	keyTasks  = 1000 // of a slice
	lockers   = 64   // callers that lock each key once
)

func measureKeys(ctx context.Context, env report.Env) (*report.Section, error) {
	tasks := part(keyTasks, env.Scale, 100)
	s := series{
		Table: &report.Table{Name: "growth-keys", Title: "Cost of a task over the number of keys", Columns: append([]string{rate}, costs...)},
		what:  "keys", sizes: sizes(env.Scale, 10, 100, 1000, 10_000, 100_000), slices: keySlices,
		open: func(ctx context.Context, at *server.Server, size int) (bench, error) {
			names := keyNames(size)
			if err := lockAll(ctx, at, names); err != nil {
				return nil, err
			}
			job := noop.Job{Keys: spread(names, (1+keySlices)*tasks), Workers: 1, Slots: keySlots}
			return startCrew(ctx, at, job, keySlices, tasks)
		},
	}
	section := &report.Section{Name: "growth-keys", Title: "Does a task cost more when there are more keys?"}
	if !wanted(env, section.Name, s.Table) {
		return nil, nil
	}
	section.Text = fmt.Sprintf("One worker with %d slots, default strategy, does %d times %d tasks that do nothing and whose keys follow one another, so that tasks in"+
		" flight have different keys as a rule. All keys have been locked once before, so their fence counters lie in Redis; with more keys than"+
		" tasks, the keys used are spread over all of them. The costs are for one task, from its fetch to its end, asynq's own included, without its"+
		" enqueueing: time by the clock at saturation, commands sent to Redis, and processor time of this process and of redis-server. "+inTurns,
		keySlots, keySlices, tasks)
	err := s.measure(ctx, env)
	s.judge(took, commands, client, servers)
	section.Tables = append(section.Tables, s.Table)
	section.Charts = append(section.Charts,
		s.chart("growth-keys-time", "Time for one task", "µs", took, client, servers),
		s.chart("growth-keys-commands", "Commands for one task", "commands", commands))
	return section, err
}

// keyNames returns n keys.
func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("order-%06d", i)
	}
	return names
}

// spread returns at most so many of the names, at equal distances.
func spread(names []string, most int) []string {
	if len(names) <= most {
		return names
	}
	some := make([]string, most)
	for i := range some {
		some[i] = names[i*len(names)/most]
	}
	return some
}

// lockAll takes and gives back each key once.
func lockAll(ctx context.Context, at *server.Server, names []string) (err error) {
	conn := redis.NewClient(&redis.Options{Addr: at.Addr(), PoolSize: lockers})
	defer func() { err = errors.Join(err, conn.Close()) }()
	locker, err := locking.NewSingle(conn, locking.SingleOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, lockers)
	)
	for i := range errs {
		wg.Go(func() {
			for n := next.Add(1); int(n) <= len(names) && errs[i] == nil; n = next.Add(1) {
				errs[i] = lockOnce(ctx, locker, names[n-1])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func lockOnce(ctx context.Context, locker locking.Locker, key string) error {
	lease, err := locker.Acquire(ctx, []string{key}, locking.Options{})
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}
