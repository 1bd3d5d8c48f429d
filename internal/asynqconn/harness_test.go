package asynqconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
)

// patience bounds every wait for an event in real time.
const patience = 20 * time.Second

// silent is a logger of asynq that says nothing.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// patient returns a client of a fake Redis whose calls end with their contexts.
func patient(t testing.TB, m *miniredis.Miniredis) *redis.Client {
	t.Helper()
	return redistest.VirtualClient(t, m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
}

// enqueue adds a task to a fake Redis.
func enqueue(t testing.TB, m *miniredis.Miniredis, task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	info, err := asynq.NewClientFromRedisClient(redistest.VirtualClient(t, m)).EnqueueContext(t.Context(), task, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// look returns what asynq knows of a task, or nil when it knows none.
func look(t testing.TB, m *miniredis.Miniredis, info *asynq.TaskInfo) *asynq.TaskInfo {
	t.Helper()
	now, err := asynq.NewInspectorFromRedisClient(redistest.VirtualClient(t, m)).GetTaskInfo(info.Queue, info.ID)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// hook is a redis.Hook that sees each command.
type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// fail answers a command with an error.
func fail(cmd redis.Cmder, err error) error {
	cmd.SetErr(err)
	return err
}

// scriptOf returns the SHA-1 and the keys of a command that runs a script by its SHA-1.
func scriptOf(cmd redis.Cmder) (sum string, keys []string, ok bool) {
	args := cmd.Args()
	if cmd.Name() != "evalsha" {
		return "", nil, false
	}
	sum, _ = args[1].(string)
	n, _ := args[2].(int)
	for _, key := range args[3 : 3+n] {
		name, _ := key.(string)
		keys = append(keys, name)
	}
	return sum, keys, true
}

// kindOf returns what a command is to asynq.
func kindOf(cmd redis.Cmder) Kind {
	sum, keys, _ := scriptOf(cmd)
	kind, _ := KindOf(sum, keys)
	return kind
}
