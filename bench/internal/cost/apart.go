package cost

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

const (
	apartTTL     = 30 * time.Second
	redlockNodes = 5
	postgresSize = 512 << 20
)

// elsewhere is a place for locks that is not the Redis of the tasks.
type elsewhere struct {
	name    string
	missing func() error
	open    func(ctx context.Context, dir string) (locks locking.Locker, servers []*server.Server, end func() error, err error)
}

var places = []elsewhere{
	{"on another Redis", nil, onAnotherRedis},
	{"Redlock on five", nil, onFive},
	{"on PostgreSQL", dbtest.FindPostgres, onPostgres},
	{"on etcd", etcdtest.Find, onEtcd},
}

// alone is how many locks as many callers as slots take and release in a second without tasks.
const alone = "alone/s"

// apart measures tasks that do nothing and whose locks are on other servers, beside what the locks alone reach.
func apart(ctx context.Context, env *measure.Env) error { return apartIn(ctx, env, places) }

func apartIn(ctx context.Context, env *measure.Env, places []elsewhere) error {
	tasks := env.Share(10_000, 500)
	c := measure.Contest{
		Name: "stock-apart", Rows: []string{"bare x 1"},
		Title: fmt.Sprintf("%d tasks that do nothing, on %d slots of a process, with keys of their own that are locked on other servers", tasks, slots),
	}
	for _, p := range places {
		c.Rows = append(c.Rows, p.name)
	}
	c.Measure = func(ctx context.Context, t *results.Table) (err error) {
		l := &locked{env: env, table: t, tasks: tasks}
		defer func() { err = errors.Join(err, l.end()) }()
		if err := l.start(ctx, places); err != nil {
			return err
		}
		return env.Each(ctx, len(l.turns), func(round, i int) error {
			env.Report("stock-apart, round %d: %s", round+1, l.turns[i].name)
			if err := l.turns[i].measure(ctx); err != nil {
				return fmt.Errorf("%s: %w", l.turns[i].name, err)
			}
			return nil
		})
	}
	return env.Measure(ctx, c)
}

// locked has the servers of all places while they are measured.
type locked struct {
	env   *measure.Env
	table *results.Table
	tasks int
	turns []turn
	ends  []func() error
	keys  atomic.Int64
}

// turn measures one row.
type turn struct {
	name    string
	measure func(ctx context.Context) error
}

func (l *locked) start(ctx context.Context, places []elsewhere) error {
	l.turns = []turn{{"bare x 1", func(ctx context.Context) error {
		return run(ctx, l.env.Dir, 0, l.table, entrant{"bare x 1", bare(1)}, l.tasks)
	}}}
	for _, p := range places {
		if p.missing != nil {
			if err := p.missing(); err != nil {
				l.table.AddRow(p.name).Note = fmt.Sprintf("left out: %v; scripts/test-deps.sh installs it", err)
				continue
			}
		}
		locks, servers, end, err := p.open(ctx, l.env.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		l.ends = append(l.ends, end)
		with := entrant{p.name, attached(attach.Options{Locker: locks}, byKey)}
		l.turns = append(l.turns,
			turn{p.name, func(ctx context.Context) error { return run(ctx, l.env.Dir, 0, l.table, with, l.tasks, servers...) }},
			turn{p.name + ", alone", func(ctx context.Context) error { return l.alone(ctx, p.name, locks) }})
	}
	return nil
}

func (l *locked) end() error {
	var errs []error
	for _, end := range slices.Backward(l.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// alone measures as many callers as there are slots, which take keys of their own and give them back.
func (l *locked) alone(ctx context.Context, row string, locks locking.Locker) error {
	gate := locking.NewGate(locks, locking.GateOptions{})
	pass := func(n int) (int, error) {
		errs := make([]error, slots)
		var callers sync.WaitGroup
		for c := range slots {
			callers.Go(func() {
				for range n / slots {
					lease, err := gate.Acquire(ctx, []string{fmt.Sprint("alone:", l.keys.Add(1))}, locking.Options{TTL: apartTTL})
					if err == nil {
						err = lease.Release(ctx)
					}
					if errs[c] = err; err != nil {
						return
					}
				}
			})
		}
		callers.Wait()
		return n / slots * slots, errors.Join(errs...)
	}
	if _, err := pass(l.tasks / warmUp); err != nil {
		return err
	}
	cost, err := measure.Meter{}.Measure(ctx, func() (int, error) { return pass(l.tasks) })
	if err != nil {
		return err
	}
	l.table.Add(row, alone, 1e6/cost[measure.Micros])
	return nil
}

func onAnotherRedis(ctx context.Context, dir string) (locking.Locker, []*server.Server, func() error, error) {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return nil, nil, nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 2 * slots})
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		s.Kill()
		return nil, nil, nil, err
	}
	return single, []*server.Server{s}, func() error {
		defer s.Kill()
		return errors.Join(single.Close(), client.Close())
	}, nil
}

// onFive returns once the servers are trusted, which takes the TTL.
func onFive(ctx context.Context, dir string) (locking.Locker, []*server.Server, func() error, error) {
	all, err := server.StartAll(ctx, dir, redlockNodes)
	if err != nil {
		return nil, nil, nil, err
	}
	nodes := make([]*redis.Options, len(all))
	for i, addr := range server.Addrs(all) {
		nodes[i] = &redis.Options{Addr: addr}
	}
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: apartTTL})
	if err != nil {
		server.KillAll(all)
		return nil, nil, nil, err
	}
	end := func() error {
		defer server.KillAll(all)
		return redlock.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*apartTTL)
	defer cancel()
	err = process.Poll(ctx, nil, func() error {
		lease, err := redlock.Acquire(ctx, []string{"trust"}, locking.Options{TTL: apartTTL})
		if err == nil {
			err = lease.Release(ctx)
		}
		return err
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	return redlock, all, end, nil
}

func onPostgres(ctx context.Context, _ string) (locking.Locker, []*server.Server, func() error, error) {
	root, _ := process.MemoryDir(postgresSize)
	postgres, err := dbtest.RunPostgres(ctx, root, "fsync=on")
	if err != nil {
		return nil, nil, nil, err
	}
	url := postgres.URL("postgres")
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, nil, errors.Join(err, postgres.End())
	}
	db.SetMaxOpenConns(2 * slots)
	db.SetMaxIdleConns(2 * slots)
	end := func() error { return errors.Join(db.Close(), postgres.End()) }
	if err := pglock.Create(ctx, db); err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	l, err := pglock.New(ctx, db, pglock.Options{Listen: url})
	if err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	return l, nil, func() error { return errors.Join(l.Close(), end()) }, nil
}

func onEtcd(ctx context.Context, dir string) (locking.Locker, []*server.Server, func() error, error) {
	cluster, err := etcdtest.Start(ctx, dir, etcdtest.Options{Members: 1})
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Addrs(), Logger: zap.NewNop(), DialTimeout: 2 * time.Second})
	if err != nil {
		return nil, nil, nil, errors.Join(err, cluster.End())
	}
	end := func() error { return errors.Join(client.Close(), cluster.End()) }
	l, err := etcdlock.New(client, etcdlock.Options{})
	if err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	return l, nil, func() error { return errors.Join(l.Close(), end()) }, nil
}
