package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestEachEnqueueIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	m, _ := redistest.Virtual(t)
	var asked []Enqueuing
	answered := errors.New("answered")
	tasks := asynq.NewClientFromRedisClient(NewEnqueuer(redistest.Patient(t, m),
		func(_ context.Context, e Enqueuing) *redis.Cmd {
			asked = append(asked, e)
			return answer(t.Context(), "", answered)
		}))
	for script, opts := range map[string][]asynq.Option{
		"enqueue": nil, "enqueueUnique": {asynq.Unique(time.Minute)}, "schedule": {asynq.ProcessIn(time.Minute)},
		"scheduleUnique": {asynq.Unique(time.Minute), asynq.ProcessIn(time.Minute)}, "addToGroup": {asynq.Group("g")},
		"addToGroupUnique": {asynq.Group("g"), asynq.Unique(time.Minute)},
	} {
		asked = nil
		_, err := tasks.Enqueue(asynq.NewTask("test", nil), append(opts, asynq.TaskID("}:t:1"), asynq.Queue("q"))...)
		if err == nil || len(asked) != 1 || asked[0].Script != script || asked[0].Queue != "q" ||
			asked[0].ID != "}:t:1" {
			t.Errorf("%s: asked about %+v, %v", script, asked, err)
		}
	}
	if keys := m.Keys(); len(keys) != 1 { // asynq's list of queues
		t.Errorf("left are %v", keys)
	}
}

func TestAnUnknownEnqueuePassesUnlessAnswered(t *testing.T) {
	t.Parallel()
	m, _ := redistest.Virtual(t)
	refusal := error(nil)
	client := NewEnqueuer(redistest.Patient(t, m), func(_ context.Context, e Enqueuing) *redis.Cmd {
		if e.Script != "" {
			t.Errorf("asked about %+v", e)
		}
		if refusal == nil {
			return nil
		}
		return answer(t.Context(), "", refusal)
	})
	script := redis.NewScript(`return redis.call("SET", KEYS[1], "changed")`)
	if err := script.Run(t.Context(), client, []string{"asynq:{q}:t:1"}).Err(); err != nil {
		t.Error(err)
	}
	refusal = errors.New("refused")
	if err := script.Run(t.Context(), client, []string{"asynq:{q}:t:2"}).Err(); !errors.Is(err, refusal) {
		t.Error(err)
	}
	if m.Exists("asynq:{q}:t:2") || !m.Exists("asynq:{q}:t:1") {
		t.Errorf("there are %v", m.Keys())
	}
}
