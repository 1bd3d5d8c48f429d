package broker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The data that a failover leaves behind may have the task in its queue again, and by now another server runs it. asynq
// repeats an acknowledgement that was answered with an error, and the repetition would end the other run.
func TestAnAcknowledgementOfAnotherRunIsNotRepeated(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	ctx := t.Context()
	tasks := asynq.NewClientFromRedisClient(client)
	conn := New(client, Options{Slots: 2, Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}})
	if _, err := tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	if cmd, _ := conn.fetch(ctx, queueKeys); cmd.Err() != nil {
		t.Fatal(cmd.Err())
	}
	client.HSet(ctx, "asynq:{default}:t:a", "pending_since", "another")
	err := ack(ctx, conn)
	if err != nil { // asynq repeats it with a context that has ended
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = ack(ended, conn)
	}
	if n := client.LLen(ctx, "asynq:{default}:active").Val(); n != 1 {
		t.Errorf("%d tasks are active: the run of another server was ended; the acknowledgement was answered with %v", n, err)
	}
}

// Redis refuses an acknowledgement, as during a failover; others take the task back; and asynq repeats the acknowledgement while its
// lease lasts.
func TestARepeatedAcknowledgementEndsNoOtherRun(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{true, false} {
		client := redistest.Start(t).Client(t)
		ctx := t.Context()
		var refuses atomic.Bool
		ours := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if refuses.Load() && strings.HasPrefix(cmd.Name(), "eval") {
				return redistest.Fail(cmd, readonlyError{})
			}
			return next(ctx, cmd)
		})
		hooked := redis.NewClient(client.Options())
		t.Cleanup(func() { _ = hooked.Close() })
		hooked.AddHook(ours)
		conn := New(hooked, Options{Slots: 2, Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}})
		if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); err != nil {
			t.Fatal(err)
		}
		if cmd, _ := conn.fetch(ctx, queueKeys); cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
		refuses.Store(true)
		if err := ack(ctx, conn); err == nil {
			t.Fatal("the acknowledgement was not refused")
		}
		refuses.Store(false)
		if others {
			client.HSet(ctx, "asynq:{default}:t:a", "pending_since", "another")
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		err := ack(ended, conn)
		if n := client.LLen(ctx, "asynq:{default}:active").Val(); (n == 1) != others || err != nil {
			t.Errorf("in another run %v: %d tasks are active after the repetition, which was answered with %v", others, n, err)
		}
	}
}

// ack acknowledges the task a as done, as go-redis sends it.
func ack(ctx context.Context, conn *Conn) error {
	keys := []string{
		"asynq:{default}:active", "asynq:{default}:lease", "asynq:{default}:t:a", "asynq:{default}:processed:2030-01-01",
		"asynq:{default}:processed",
	}
	if err := conn.EvalSha(ctx, done, keys, "a", 0, 0).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	return conn.Eval(ctx, doneText, keys, "a", 0, 0).Err()
}

// readonlyError is what a replica answers.
type readonlyError struct{}

func (readonlyError) Error() string { return "READONLY You can't write against a read only replica." }
func (readonlyError) RedisError()   {}

// doneText is the text of asynq's done.
const doneText = `
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("ZREM", KEYS[2], ARGV[1]) == 0 then
  return redis.error_reply("NOT FOUND")
end
if redis.call("DEL", KEYS[3]) == 0 then
  return redis.error_reply("NOT FOUND")
end
local n = redis.call("INCR", KEYS[4])
if tonumber(n) == 1 then
	redis.call("EXPIREAT", KEYS[4], ARGV[2])
end
local total = redis.call("GET", KEYS[5])
if tonumber(total) == tonumber(ARGV[3]) then
	redis.call("SET", KEYS[5], 1)
else
	redis.call("INCR", KEYS[5])
end
return redis.status_reply("OK")
`

// A run is known for as long as asynq extends its lease on the task.
func TestALongRunIsKnownUntilItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Virtual(t)
		conn := New(redistest.Patient(t, m), Options{
			Queues: numbered(1), Slots: 2,
			Tasks: &witness{answers: func(Acknowledgement) (bool, error) { return false, nil }},
		})
		s := bareServer(t, conn, func(context.Context, *asynq.Task) error {
			time.Sleep(5 * time.Minute)
			return nil
		}, func(cfg *asynq.Config) { cfg.Concurrency = 2 })
		var ids []string
		for range 2 {
			ids = append(ids, asynqtest.Enqueue(t, m, asynq.NewTask("long", nil)).ID)
		}
		time.Sleep(4 * time.Minute)
		if !conn.intake.Full() {
			t.Error("a slot of a run is taken for free")
		}
		for _, id := range ids {
			if conn.intake.Run("default", id) == "" {
				t.Errorf("the run of %s is not known", id)
			}
		}
		time.Sleep(2 * time.Minute)
		s.Shutdown()
	})
}
