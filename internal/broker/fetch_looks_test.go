package broker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Only a fetch that has found nothing has the next one look first. A fetch that ends says whether asynq may sleep.
func TestAFetchThatFindsNothingHasTheNextOneLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, client := newVirtual(t)
		looks, scripts := 0, 0
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			switch {
			case cmd.Name() == "exists":
				looks++
			case strings.HasPrefix(cmd.Name(), "eval"):
				scripts++
			}
			return next(ctx, cmd)
		}))
		conn := New(client, Options{Queues: numbered(1), Slots: 10, Tasks: &witness{}})
		enqueue(t, client, "warm", "") // Redis knows the script from then on
		if cmd, _ := conn.fetch(t.Context(), queueKeys); cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
		for i, step := range []struct {
			task           string // that is enqueued before
			refusal        string // of Redis
			looks, scripts int
			found          bool
			fails          bool
		}{
			{looks: 0, scripts: 1},
			{looks: 1, scripts: 0},
			{task: "a", looks: 1, scripts: 1, found: true},
			{task: "b", looks: 0, scripts: 1, found: true}, // whether asynq or the fetch hears of it first
			{task: "c", looks: 0, scripts: 1, found: true},
			{task: "d", looks: 0, scripts: 1, found: true},
			{task: "e", looks: 0, scripts: 1, found: true},
			{task: "f", looks: 0, scripts: 1, found: true},
			{looks: 0, scripts: 1},
			{refusal: "OOM", looks: 1, scripts: 1, fails: true},
			{looks: 0, scripts: 1},
			{looks: 1, scripts: 0},
		} {
			if step.task != "" {
				enqueue(t, client, step.task, "")
			}
			looks, scripts = 0, 0
			m.SetError(step.refusal)
			cmd, more := conn.fetch(t.Context(), queueKeys)
			m.SetError("")
			message, err := cmd.Text()
			if more || looks != step.looks || scripts != step.scripts {
				t.Errorf("step %d: %d looks and %d scripts, want %d and %d; more may follow: %v", i, looks, scripts, step.looks, step.scripts, more)
			}
			switch {
			case step.found && (err != nil || !strings.Contains(message, step.task)),
				step.fails && (err == nil || !strings.Contains(err.Error(), step.refusal)),
				!step.found && !step.fails && err != redis.Nil: //nolint:errorlint // as asynq has it
				t.Errorf("step %d: %q, %v", i, message, err)
			}
		}
	})
}
