package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// A key is held for too long, and a task reaches a bound of its waiting. It is archived with a reason that can be read
// back. When the holder is mended, it runs again.
func ExampleReplayConflicts() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ended := make(chan middleware.Outcome, 2)
	rt, err := attach.New(client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{
		Strategy: middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				ended <- middleware.Park
			} else if conflict, ok := errors.AsType[*middleware.ConflictError](e.Err); ok && conflict.Outcome == middleware.Archive {
				ended <- middleware.Archive
			}
		},
	})
	if err != nil {
		panic(err)
	}
	defer rt.Close()

	stuck, err := rt.Locker().Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "a stuck worker"})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	if err := srv.Start(rt.Lock(middleware.FixedKey("order:1042"))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(done)
		return nil
	}))); err != nil {
		panic(err)
	}
	defer srv.Shutdown()
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("order:audit", nil)); err != nil {
		panic(err)
	}

	fmt.Println(<-ended)
	if _, err := rt.Queue().Wake(ctx, "order:1042", delayqueue.WakeOptions{}); err != nil { // as when its holder changes
		panic(err)
	}
	<-ended

	archive := asynq.NewInspectorFromRedisClient(client)
	var archived []*asynq.TaskInfo
	for len(archived) == 0 && ctx.Err() == nil { // it is there in a moment
		if archived, err = archive.ListArchivedTasks("default"); err != nil {
			panic(err)
		}
	}
	reason, err := middleware.ParseConflict(archived[0].Result)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %d %s of %s because of %s\n", reason.Outcome, reason.Conflicts, reason.Limit, reason.Key, reason.Holder.Label)

	if err := stuck.Release(ctx); err != nil {
		panic(err)
	}
	replayed, err := middleware.ReplayConflicts(ctx, rt.Queue(), middleware.ReplayOptions{Queue: "default", Key: "order:1042"})
	if err != nil {
		panic(err)
	}
	fmt.Println("replayed:", replayed)
	<-done
	fmt.Println("it runs")
	// Output:
	// parked
	// archived: 2 conflicts of order:1042 because of a stuck worker
	// replayed: 1
	// it runs
}
