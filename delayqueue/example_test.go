package delayqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// Two tasks wait for an order. Each time it is given back, the next of them is moved to the head of its queue.
func ExampleQueue_Wake() {
	ctx := context.Background()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		panic(err)
	}
	defer queue.Close()

	// Package middleware parks a task whose key is held; here, park stands for it.
	tasks := asynq.NewClientFromRedisClient(client)
	for _, id := range []string{"audit-1042", "allocate-1042"} {
		if _, err := tasks.Enqueue(asynq.NewTask("order", nil), asynq.TaskID(id)); err != nil {
			panic(err)
		}
		park(ctx, client, queue, delayqueue.Task{Queue: "default", ID: id}, "order:1042")
	}

	for range 3 {
		woken, err := queue.Wake(ctx, "order:1042", delayqueue.WakeOptions{})
		if err != nil {
			panic(err)
		}
		fmt.Printf("woke %v, %d left\n", woken.Tasks, woken.Left)
	}
	// Output:
	// woke [default/audit-1042], 1 left
	// woke [default/allocate-1042], 0 left
	// woke [], 0 left
}

// A task that has been refused too often does not go on waiting.
func ExampleLimits_Reached() {
	limits, met := delayqueue.Limits{Conflicts: 2, Age: time.Hour}, delayqueue.Conflict{First: time.Now()}
	for met.Count < 3 {
		met.Count++
		fmt.Printf("conflict %d, limit %q\n", met.Count, limits.Reached(met))
	}
	// Output:
	// conflict 1, limit ""
	// conflict 2, limit ""
	// conflict 3, limit "conflicts"
}
