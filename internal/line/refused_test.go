package line_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// wrapped is a client of a user's own around go-redis's: the Queue works in steps.
type wrapped struct{ *redis.Client }

// The user may not call one of the commands that asynq does not need: Redis undoes nothing of a script that fails.
func TestAParkThatFailsHalfwayLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, denied := range []string{"hmget", "time", "zcard", "zrank", "zremrangebyscore", "pttl"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			r := soloOn(t, server.Client(t))
			user := server.Client(t, server.User(t, denied, "~*", "&*", "+@all", "-"+denied))
			for name, client := range map[string]redis.UniversalClient{"at once": user, "in steps": wrapped{user}} {
				task := r.Begin(r.Delayed(denied + name))
				_, _ = r.on(client).Park(t.Context(), task, denied, line.ParkOptions{RetryAfter: time.Minute})
				// and asynq's recoverer finds the latter
				safe := [][]string{{"default retry"}, {"default active", "default lease"}}
				if lists := r.everywhere(task.ID); !slices.ContainsFunc(safe,
					func(s []string) bool { return slices.Equal(s, lists) }) {
					t.Errorf("%s: it is in %v", name, lists)
				}
			}
		})
	}
}

// The server's user may not touch the lines.
func TestATaskThatCannotBeParkedIsPutOff(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := soloOn(t, server.Client(t))
	log := new(bytes.Buffer)
	user := server.Client(t, server.User(t, "u", "~asynq:*", "&*", "+@all"))
	queue, err := line.New(user, line.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	r.OK(err)
	on := *r
	on.Engine = queue
	s := linetest.Serve(t, queue, asynq.Config{}, func(ctx context.Context,
		_ string,
	) error {
		return on.parks(ctx, nil)
	})
	for _, id := range []string{"a", "b"} {
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id), asynq.MaxRetry(0))
		r.OK(err)
		r.Until("it is put off", func() bool { return slices.Equal(r.everywhere(id), []string{"default retry"}) })
	}
	s.Shutdown()
	r.OK(queue.Close())
	if n := strings.Count(log.String(), "Redis refuses to park tasks"); n != 1 ||
		!strings.Contains(log.String(), "NOPERM") || queue.Runs() != 0 {
		t.Errorf("%d runs are remembered, and the log says %s", queue.Runs(), log)
	}
	r.uncounted()
}
