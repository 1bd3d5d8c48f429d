package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// healthy are set-ups with nothing to find, and the checks that cannot be made there.
var healthy = map[string]struct {
	set       func(*testing.T) *system
	unchecked []string
}{
	"an empty Redis": {func(t *testing.T) *system { return newSystem(t) }, nil},
	"an idle worker": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:servers").Val() > 0 })
		return s
	}, nil},
	"tasks that wait": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		s.parked("any", "order:1")
		return s
	}, nil},
	"a hot key that drains quickly": {func(t *testing.T) *system {
		s := newSystem(t)
		s.crowd(30, 60)
		return s
	}, nil},
	"a crowd that has just come": {func(t *testing.T) *system {
		s := newSystem(t)
		s.crowd(30, 0)
		return s
	}, nil},
	"a head that is retried at once": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker(func(c *worker.Config) {
			c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 20 * time.Second }
		})
		s.enqueue("strict", "order:8", asynq.Timeout(time.Minute))
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:{default}:retry").Val() == 1 })
		s.parked("strict", "order:8")
		return s
	}, nil},
	"every slot in use": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker(func(c *worker.Config) { c.Concurrency = 1 })
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		s.enqueue("any", "order:2", asynq.Timeout(time.Minute))
		return s
	}, nil},
	"locks on a Redis of their own": {func(t *testing.T) *system {
		s := newSystem(t)
		locks := redistest.Start(t, durable...)
		s.src.Locks = locks.Client(t)
		s.worker(func(c *worker.Config) { c.LockRedis.Addr = locks.Addr() })
		return s
	}, nil},
	"another application in another database": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		other := asynq.NewClientFromRedisClient(s.server.Client(t, func(o *redis.Options) { o.DB = 3 }))
		if _, err := other.Enqueue(asynq.NewTask("any", nil), asynq.Queue("theirs")); err != nil {
			t.Fatal(err)
		}
		return s
	}, nil},
	"Lockers that do not tell where their locks are": {func(t *testing.T) *system {
		s := newSystem(t)
		single, err := locking.NewSingle(s.client, locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = single.Close() })
		for range 2 {
			s.worker(func(c *worker.Config) { c.Locker = struct{ locking.Locker }{single} })
		}
		s.until(func() bool { return s.client.ZCard(t.Context(), "railtoken:workers").Val() == 2 })
		return s
	}, []string{"workers"}},
	"a Redis Cluster": {func(t *testing.T) *system {
		s := &system{T: t}
		s.src.Tasks = durableCluster(t).Client(t)
		s.src.Tasks.SAdd(t.Context(), "asynq:queues", "default", "audits")
		return s
	}, nil},
	"after SCRIPT FLUSH": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:servers").Val() > 0 })
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return s
	}, nil},
	"a managed Redis without INFO and CONFIG": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		s.src.Tasks = s.server.Client(t, s.server.User(t, "shop", "~asynq:*", "~railtoken:*", "&*", "+@all", "-@dangerous"))
		return s
	}, []string{"eviction", "persistence", "role", "version"}},
	"a user who may only read": {func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		s.src.Tasks = s.server.Client(t, s.server.User(t, "reader", "~asynq:*", "~railtoken:*", "+@read", "+@connection"))
		return s
	}, []string{"acl", "asynq-scripts", "clock", "commands", "eviction", "persistence", "role", "version", "writes"}},
}

func TestHealthySetUpsHaveNoFindings(t *testing.T) {
	t.Parallel()
	for name, c := range healthy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := c.set(t).examine()
			for _, f := range report.Findings {
				t.Errorf("finding: %+v", f)
			}
			var unchecked []string
			for _, u := range report.Unchecked {
				unchecked = append(unchecked, u.Check)
				if u.Where == "" || u.Why == "" || strings.Contains(u.Why, "SETUSER") {
					t.Errorf("not checked: %+v", u)
				}
			}
			slices.Sort(unchecked)
			if !slices.Equal(slices.Compact(unchecked), c.unchecked) {
				t.Errorf("not checked are %v, want %v", unchecked, c.unchecked)
			}
		})
	}
}
