package broker

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestEachFiringIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	unique := asynq.Unique(time.Hour)
	for name, opts := range map[string][]asynq.Option{
		"pending": nil, "delayed": {asynq.ProcessIn(time.Hour)}, "in a group": {asynq.Group("g")},
		"unique": {unique}, "delayed and unique": {
			asynq.ProcessIn(time.Hour),
			unique,
		}, "in a group and unique": {asynq.Group("g"), unique},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, client := redistest.Virtual(t)
				for i, step := range []struct {
					what    string
					token   int64
					lost    bool
					after   time.Duration
					ahead   time.Duration // the clock of the leader before
					fires   bool
					wantErr string
				}{
					{what: "the first", token: 10, fires: true},
					{what: "another entry in the same second", token: 10, fires: true},
					{what: "the next leader in that second", token: 11},
					{what: "the next leader later", token: 11, after: time.Second, fires: true},
					{what: "the leader before, late", token: 10, after: time.Second},
					{what: "the leader before, who knows it", token: 10, lost: true},
					{
						what: "a leader who has lost its lease", token: 12, lost: true,
						wantErr: "lease of this scheduler is lost",
					},
					{what: "in another second still", token: 11, after: time.Second, fires: true},
					{what: "after a leader whose clock was ahead", token: 13, ahead: 5 * time.Second},
					{what: "after a leader whose clock was wrong", token: 13, ahead: time.Hour, fires: true},
				} {
					time.Sleep(step.after)
					if step.ahead > 0 {
						m.HSet("railtoken:fired:{default}:ticks", "second",
							strconv.FormatInt(time.Now().Add(step.ahead).Unix(), 10))
					}
					conn := NewFirings(client, "ticks", step.token, func() bool { return !step.lost })
					before := tasksIn(m.Keys())
					_, err := asynq.NewClientFromRedisClient(conn).Enqueue(asynq.NewTask("tick", []byte{byte(i)}),
						opts...)
					if fired := tasksIn(m.Keys()) - before; (fired == 1) != step.fires || fired > 1 {
						t.Errorf("%s: %d tasks are enqueued", step.what, fired)
					}
					if (err == nil) != (step.wantErr == "") || err != nil &&
						!strings.Contains(err.Error(), step.wantErr) {
						t.Errorf("%s: %v", step.what, err)
					}
				}
			})
		})
	}
}

// tasksIn counts asynq's tasks.
func tasksIn(keys []string) (n int) {
	for _, key := range keys {
		if strings.HasPrefix(key, "asynq:{default}:t:") {
			n++
		}
	}
	return n
}

// go-redis sends a call again whose reply was lost; the task may have run by then.
func TestAFiringThatIsSentTwiceIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := redistest.Virtual(t)
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if cmd.Name() == "eval" {
				for _, key := range m.Keys() {
					if strings.HasPrefix(key, "asynq:{default}:") {
						m.Del(key)
					}
				}
				err = next(ctx, cmd)
			}
			return err
		}))
		conn := NewFirings(client, "ticks", 1, func() bool { return true })
		if _, err := asynq.NewClientFromRedisClient(conn).Enqueue(asynq.NewTask("tick", nil)); err != nil ||
			tasksIn(m.Keys()) > 0 {
			t.Errorf("%d tasks, %v", tasksIn(m.Keys()), err)
		}
	})
}
