package doctor_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// incidents are faults of handlers and deployments.
var incidents = map[string]fault{
	"slots that all hang": {"slots", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker(func(c *worker.Config) { c.Concurrency = 2 })
		for _, key := range []string{"order:1", "order:2"} {
			s.await(s.enqueue("any", key, asynq.Timeout(time.Minute)), middleware.Acquired)
		}
		s.enqueue("any", "order:3", asynq.Timeout(time.Minute))
		s.until(func() bool {
			servers, err := asynq.NewInspectorFromRedisClient(s.client).Servers()
			return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 2
		})
		s.src.Settings.LongRun = time.Millisecond
		return s
	}, []string{"none of its 2 slots", "1 tasks wait", "asynq.Timeout", "it runs any"}, nil},
	"a key that is held for long": {"held", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.reported(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)))
		for range 3 {
			s.parked("any", "order:1")
		}
		s.src.Settings.LongRun = time.Millisecond
		return s
	}, []string{"key order:1", "has held it for", "3 tasks wait for it", "in worker", "railtoken depose order:1"}, nil},
	"a key that no worker reports": {"held", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.hold("order:1")
		s.parked("any", "order:1")
		s.src.Settings.LongRun = time.Millisecond
		return s
	}, []string{"key order:1", "one task waits for it", "no worker reports it"}, nil},
	"a head that has failed": {"behind-failed", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker(func(c *worker.Config) {
			c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		})
		s.enqueue("strict", "order:8", asynq.Timeout(time.Minute))
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:{default}:retry").Val() == 1 })
		s.parked("strict", "order:8")
		s.parked("strict", "order:8")
		return s
	}, []string{"key order:8", "has failed and runs again in 60 min", "2 tasks wait for it", "no paper", "railtoken drop default/"}, nil},
	"a crowd at one key": {"crowd", func(t *testing.T) *system {
		s := newSystem(t)
		s.crowd(30, 2)
		return s
	}, []string{"key order:1", "30 tasks wait", "2 of them run per minute", "in about 15 min", "railtoken put-first"}, nil},
	"a type without a handler": {"no-handler", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.enqueue("unknown", "order:1", asynq.Timeout(time.Minute))
		s.until(func() bool { return s.client.ZCard(t.Context(), "asynq:{default}:retry").Val() == 1 })
		return s
	}, []string{"type unknown", "no handler", "register a handler", "queue default"}, nil},
	"a command on the wrong database": {"database", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.enqueue("any", "order:1", asynq.Timeout(time.Minute))
		s.src.Tasks = s.server.Client(t, func(o *redis.Options) { o.DB = 3 })
		return s
	}, []string{"database 3 has no queue", "database 0 has default", "RAILTOKEN_REDIS_DB"}, nil},
	"tasks in the wrong database": {"database", func(t *testing.T) *system {
		s := newSystem(t)
		s.worker()
		s.await(s.enqueue("any", "order:1", asynq.Timeout(time.Minute)), middleware.Acquired)
		client := asynq.NewClientFromRedisClient(s.server.Client(t, func(o *redis.Options) { o.DB = 3 }))
		if _, err := client.Enqueue(asynq.NewTask("any", nil)); err != nil {
			t.Fatal(err)
		}
		return s
	}, []string{"1 tasks of queue default wait in database 3", "servers of that queue are in database 0"}, nil},
}
