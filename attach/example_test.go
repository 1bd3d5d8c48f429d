package attach_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
)

// Every replica says what the schedule is, and one of them runs it.
func ExampleAttached_Schedule() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	rt, err := attach.New(client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{})
	if err != nil {
		panic(err)
	}
	defer rt.Close()

	err = rt.Schedule("reports", func(client redis.UniversalClient) (attach.Scheduler, error) {
		s := asynq.NewSchedulerFromRedisClient(client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
		_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
		return s, err
	})
	if err != nil {
		panic(err)
	}

	fired := make(chan string)
	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	err = srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		fired <- task.Type()
		return nil
	}))
	if err != nil {
		panic(err)
	}
	fmt.Println(<-fired)
	rt.Stop()
	srv.Shutdown()
	// Output: report
}
