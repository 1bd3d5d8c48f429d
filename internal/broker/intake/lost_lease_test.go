package intake_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const doneText = `redis.call('LREM', KEYS[2], 0, ARGV[1])
redis.call('DEL', KEYS[1])
return redis.status_reply('OK')`

// losing is a hook that loses the replies to scripts while it is told so.
func losing(lose *atomic.Bool) redis.Hook {
	return redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		lost := lose.Load()
		err := next(ctx, cmd)
		if lost && strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return redistest.Fail(cmd, errors.New("connection reset by peer"))
		}
		return err
	})
}

// Redis could not be reached for so long that the lease of what was taken has ended.
func TestWhatIsRecalledHasANewLease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, client := server.Client(t), server.Client(t)
	ctx := t.Context()
	enqueue(t, admin, "default", 2)
	var lose atomic.Bool
	client.AddHook(losing(&lose))
	in := intake.New(client, intake.Options{Slots: 1})
	renewed := func(id string) bool {
		return admin.ZScore(ctx, "asynq:{default}:lease", id).Val() > float64(time.Now().Add(20*time.Second).Unix())
	}
	take := func() (task intake.Task) {
		t.Helper()
		eventually(t, "a task comes", func() (ok bool) {
			task, ok = in.Take()
			return ok
		})
		return task
	}
	ended := func(id string) {
		admin.ZAdd(ctx, "asynq:{default}:lease", redis.Z{Score: 1, Member: id})
		lose.Store(false)
	}
	lose.Store(true)
	if _, err := in.Fetch(ctx, "default"); err == nil {
		t.Fatal("the reply was not lost")
	}
	ended("default0")
	if task := take(); task.ID != "default0" || !renewed("default0") {
		t.Errorf("after a fetch comes %+v, and its lease is new: %t", task, renewed("default0"))
	}

	lose.Store(true)
	if ok, err := in.Acknowledge(ctx, intake.Acknowledgement{
		Queue: "default", ID: "default0", Text: doneText,
		Keys: []string{"asynq:{default}:t:default0", "asynq:{default}:active"}, Args: []any{"default0"},
	}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ended("default1")
	if task := take(); task.ID != "default1" || !renewed("default1") {
		t.Errorf("after an acknowledgement comes %+v, and its lease is new: %t", task, renewed("default1"))
	}
}
