package delayqueue_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqconn"
)

// serve runs an asynq server that speaks through a Queue until the end of the test.
func serve(t *testing.T, queue *delayqueue.Queue, cfg asynq.Config, handler func(ctx context.Context, id string) error) *asynq.Server {
	t.Helper()
	interval := cmp.Or(cfg.TaskCheckInterval, 5*time.Millisecond)
	cfg.TaskCheckInterval, cfg.ShutdownTimeout, cfg.LogLevel = asynqconn.CheckInterval, time.Millisecond, asynq.FatalLevel
	if cfg.IsFailure == nil {
		cfg.IsFailure = func(error) bool { return false }
	}
	if cfg.RetryDelayFunc == nil {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}
	conn := queue.Conn(asynqconn.Options{Queues: max(len(cfg.Queues), 1), Interval: interval})
	server := asynq.NewServerFromRedisClient(conn, cfg)
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return handler(ctx, id)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server
}

// fetchScript does what asynq's own script does when a server fetches a task, but for a task wherever it is. It does nothing when the task is in no list.
var fetchScript = redis.NewScript(`
local task, pending, scheduled, retry, active, lease = unpack(KEYS)
local id = ARGV[1]
if redis.call('LREM', pending, 1, id) + redis.call('ZREM', scheduled, id) + redis.call('ZREM', retry, id) == 0 then
  return 0
end
redis.call('LPUSH', active, id)
redis.call('ZADD', lease, ARGV[2], id)
redis.call('HSET', task, 'state', 'active')
redis.call('HDEL', task, 'pending_since')
return 1`)

// fetch makes a task active, with a lease of 30 s.
func fetch(ctx context.Context, client redis.UniversalClient, t delayqueue.Task) error {
	prefix := "asynq:{" + t.Queue + "}:"
	keys := []string{hash(t), prefix + "pending", prefix + "scheduled", prefix + "retry", prefix + "active", prefix + "lease"}
	return fetchScript.Run(ctx, client, keys, t.ID, time.Now().Add(30*time.Second).Unix()).Err()
}
