package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// A server that never parks tasks: a task waits in its slot for up to 20 s, and is retried after that.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	type Order struct{ ID string }
	lock, err := middleware.Lock(middleware.Options{
		Locker:   locker,
		Key:      middleware.PayloadKey(func(o Order) string { return middleware.Key("order", o.ID) }),
		Strategy: middleware.Wait{Max: 20 * time.Second}.Then(middleware.FailFast{Outcome: middleware.Retry}),
	})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Handle("order:audit", lock(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		lease, _ := locking.FromContext(ctx)
		fmt.Println("working on", lease.Keys())
		return nil
	})))

	cfg := middleware.ServerConfig(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel})
	srv := asynq.NewServerFromRedisClient(client, cfg)
	if err := srv.Start(mux); err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(Order{ID: "1042"})
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("order:audit", payload)); err != nil {
		panic(err)
	}
	<-done
	srv.Shutdown()
	// Output: working on [order:1042]
}

// Strategies are functions of a conflict, so that what they do can be tried out.
func ExampleWait_Then() {
	strategy := middleware.Wait{Max: 250 * time.Millisecond}.Then(middleware.Requeue{})

	now := time.Now()
	c := middleware.Conflict{Key: "order:1042", FirstAt: now, Now: now, Attempt: 1, MayWait: true}
	fmt.Println("at first it waits in its slot:", strategy.Decide(c).Outcome == middleware.WaitInSlot)
	c.Now = now.Add(250 * time.Millisecond)
	fmt.Println("then it is parked:", strategy.Decide(c).Outcome == middleware.Park)
	c.Now, c.MayWait = now, false
	fmt.Println("while too many wait, it is parked at once:", strategy.Decide(c).Outcome == middleware.Park)
	// Output:
	// at first it waits in its slot: true
	// then it is parked: true
	// while too many wait, it is parked at once: true
}

// A strategy of one's own: fail fast while the holder is young, and wait for one that is nearly done.
func ExampleStrategy() {
	strategy := decide(func(c middleware.Conflict) middleware.Decision {
		if c.Now.Sub(c.Holder.Since) < time.Second {
			return middleware.FailFast{}.Decide(c)
		}
		return middleware.Requeue{}.Decide(c)
	})

	now := time.Now()
	young := middleware.Conflict{Now: now, Holder: locking.Holder{Since: now}}
	old := middleware.Conflict{Now: now, Holder: locking.Holder{Since: now.Add(-time.Minute)}}
	fmt.Println(strategy.Decide(young).Outcome == middleware.Archive, strategy.Decide(old).Outcome == middleware.Park)
	// Output: true true
}

type decide func(middleware.Conflict) middleware.Decision

func (d decide) Decide(c middleware.Conflict) middleware.Decision { return d(c) }
