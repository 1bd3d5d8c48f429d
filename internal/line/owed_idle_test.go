package line_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The looks of an idle server, which it sends in any case, are for owed wakes as well.
func TestAnIdleServerAsksForOwedWakesInPassing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		var asked asking
		client.AddHook(&asked)
		engine, err := line.New(client, line.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engine.Close() })
		conn := engine.Conn(broker.Options{Queues: map[string]int{"default": 1}, Interval: 50 * time.Millisecond, Slots: 4})
		server := asynq.NewServerFromRedisClient(conn, asynq.Config{TaskCheckInterval: time.Millisecond, LogLevel: asynq.FatalLevel})
		if err := server.Start(asynq.NewServeMux()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		<-time.After(10 * time.Second)
		if n := asked.times.Load(); n > 2 {
			t.Errorf("an idle server has asked %d times more", n)
		}
		was := asked.times.Load()
		if err := client.ZAdd(t.Context(), "railtoken:parked:owed", redis.Z{Score: 1e15, Member: line.Names{}.Waiters("k")}).Err(); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		if n := asked.times.Load() - was; n < 23 {
			t.Errorf("while a wake is owed it has asked %d times in 10 s", n)
		}
	})
}

// asking counts how often owed wakes are asked for by a command of their own.
type asking struct{ times atomic.Int64 }

func (*asking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*asking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *asking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "zcard" {
			a.times.Add(1)
		}
		return next(ctx, cmd)
	}
}
