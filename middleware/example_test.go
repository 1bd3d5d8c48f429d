package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// An asynq server with locks: package attach puts the middleware, the locks and the waiting tasks together.
func Example() {
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

	type Audit struct{ Order string }
	key := middleware.PayloadKey(func(a Audit) string { return middleware.Key("order", a.Order) })
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Handle("order:audit", rt.Lock(key)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		lease, _ := locking.FromContext(ctx)
		fmt.Println("working on", lease.Keys())
		return nil
	})))

	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	if err := srv.Start(mux); err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(Audit{Order: "1042"})
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
	c := middleware.Conflict{Key: "order:1042", FirstAt: now, Now: now, Attempt: 1, MayWait: true, MayStandBy: true}
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
