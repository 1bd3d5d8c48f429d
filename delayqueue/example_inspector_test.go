package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// Three tasks wait for an order. One is urgent, and one is not needed any more.
func ExampleInspector_Waiters() {
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
	for _, id := range []string{"audit-1042", "allocate-1042", "refund-1042"} {
		if _, err := tasks.Enqueue(asynq.NewTask("order", nil), asynq.TaskID(id)); err != nil {
			panic(err)
		}
		park(ctx, client, queue, delayqueue.Task{Queue: "default", ID: id}, "order:1042")
	}

	show := func() {
		waiters, err := queue.Inspector().Waiters(ctx, "order:1042", 10)
		if err != nil {
			panic(err)
		}
		for _, w := range waiters {
			fmt.Printf("%d. %s, %d conflict, tries again by itself in about %v\n",
				w.Position, w.Task.ID, w.Conflicts, time.Until(w.Next).Round(time.Minute))
		}
	}
	show()
	if err := queue.Inspector().PutFirst(ctx, "order:1042",
		delayqueue.Task{Queue: "default", ID: "refund-1042"}); err != nil {
		panic(err)
	}
	if err := queue.Inspector().Drop(ctx, delayqueue.Task{Queue: "default", ID: "audit-1042"}); err != nil {
		panic(err)
	}
	fmt.Println("and then:")
	show()
	// Output:
	// 1. audit-1042, 1 conflict, tries again by itself in about 1h0m0s
	// 2. allocate-1042, 1 conflict, tries again by itself in about 1h0m0s
	// 3. refund-1042, 1 conflict, tries again by itself in about 1h0m0s
	// and then:
	// 1. refund-1042, 1 conflict, tries again by itself in about 1h0m0s
	// 2. allocate-1042, 1 conflict, tries again by itself in about 1h0m0s
}

// A task that was archived runs again, once.
func ExampleInspector_Replay() {
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

	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("order", nil),
		asynq.TaskID("audit-1042")); err != nil {
		panic(err)
	}
	if err := asynq.NewInspectorFromRedisClient(client).ArchiveTask("default", "audit-1042"); err != nil {
		panic(err)
	}

	task := delayqueue.Task{Queue: "default", ID: "audit-1042"}
	fmt.Println("replayed:", queue.Inspector().Replay(ctx, task) == nil)
	err = queue.Inspector().Replay(ctx, task)
	fmt.Println(err)
	fmt.Println(errors.Is(err, delayqueue.ErrNotArchived))
	// Output:
	// replayed: true
	// delayqueue: task default/audit-1042 is not archived: it is pending
	// true
}
