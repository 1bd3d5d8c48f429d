package intake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// A server runs a task for longer than it was silent, others have taken the task back, and it is the one that fetches it.
func TestATaskThatIsTakenBackWaitsForItsRunOnTheSameServer(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	ctx := t.Context()
	enqueue(t, client, "default", 1)
	in := intake.New(client, intake.Options{Slots: 4})
	fetched := func() bool {
		if _, err := in.Fetch(ctx, "default"); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		_, ok := in.Take()
		return ok
	}
	if !fetched() {
		t.Fatal("no task came")
	}
	client.LMove(ctx, "asynq:{default}:active", "asynq:{default}:pending", "LEFT", "RIGHT")
	client.HSet(ctx, "asynq:{default}:t:default0", "pending_since", "1")
	for i := range 2 {
		more, err := in.Fetch(ctx, "default")
		if err != nil || !more {
			t.Errorf("fetch %d: more tasks: %v, %v; those behind it are to be fetched at once", i+1, more, err)
		}
		if _, ok := in.Take(); ok {
			t.Errorf("fetch %d: asynq gets a task that it still has", i+1)
		}
		if n := client.LLen(ctx, "asynq:{default}:active").Val(); n != 1 {
			t.Errorf("fetch %d: it goes back at once, so that a server would do nothing else", i+1)
		}
		eventually(t, "it goes back", func() bool { return client.LLen(ctx, "asynq:{default}:pending").Val() == 1 })
		if n := client.ZCard(ctx, "asynq:{default}:lease").Val(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	}
	over := in.Acknowledging("default", "default0")
	in.End("default", "default0")
	over()
	if !fetched() {
		t.Error("the task does not come after the end of its first run")
	}
}

// Its acknowledgement comes in each way: with other tasks, alone on a Cluster, and during a shutdown that puts the task back.
func TestTheEndOfARunThatWasTakenBackChangesNothing(t *testing.T) {
	t.Parallel()
	for topology, start := range map[string]func(t *testing.T) (redis.UniversalClient, redis.UniversalClient){
		"standalone": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient) {
			t.Helper()
			s := redistest.Start(t)
			return s.Client(t), s.Client(t)
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, redis.UniversalClient) {
			t.Helper()
			c := redistest.StartCluster(t, 3)
			return c.Client(t), c.Client(t)
		},
	} {
		for name, outcome := range map[string]struct {
			opts []asynq.Option
			err  error
			stop bool
		}{
			"done":         {},
			"kept":         {opts: []asynq.Option{asynq.Retention(time.Hour)}},
			"unique":       {opts: []asynq.Option{asynq.Unique(time.Hour)}},
			"kept, unique": {opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)}},
			"retried":      {err: errors.New("it fails")},
			"archived":     {err: fmt.Errorf("it fails: %w", asynq.SkipRetry)},
			"put back":     {stop: true},
		} {
			t.Run(topology+", "+name, func(t *testing.T) {
				t.Parallel()
				client, admin := start(t)
				ctx := t.Context()
				began, end := make(chan struct{}, 1), make(chan struct{})
				s := serve(t, client, asynq.Config{Concurrency: 2, ShutdownTimeout: 100 * time.Millisecond},
					broker.Options{}, func(context.Context, *asynq.Task) error {
						began <- struct{}{}
						<-end
						return outcome.err
					})
				if _, err := asynq.NewClientFromRedisClient(admin).Enqueue(asynq.NewTask("test", nil), append(outcome.opts, asynq.TaskID("a"))...); err != nil {
					t.Fatal(err)
				}
				redistest.Receive(t, began, patience)
				if run := admin.HGet(ctx, "asynq:{default}:t:a", "pending_since").Val(); len(run) < 20 {
					t.Fatalf("its run is %q", run)
				}
				const another = "0123456789abcdefANOTHERO.1"
				admin.HSet(ctx, "asynq:{default}:t:a", "pending_since", another)
				if outcome.stop {
					s.Shutdown()
					close(end)
				} else {
					close(end)
					s.Shutdown()
				}
				active, run := admin.LRange(ctx, "asynq:{default}:active", 0, -1).Val(), admin.HGet(ctx, "asynq:{default}:t:a", "pending_since").Val()
				state := admin.HGet(ctx, "asynq:{default}:t:a", "state").Val()
				if len(active) != 1 || run != another || state != "active" || admin.ZCard(ctx, "asynq:{default}:lease").Val() != 1 {
					t.Errorf("active are %v, it is %s, in run %q: the run of another server was ended", active, state, run)
				}
			})
		}
	}
}
