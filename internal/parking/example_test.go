package parking_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/parking"
)

// Two tasks for one order are enqueued for different queues. Whichever a worker gets first, the audit has its turn
// first.
func ExampleEngine_Join() {
	ctx := context.Background()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	queue, err := parking.New(client, parking.Options{})
	if err != nil {
		panic(err)
	}
	defer queue.Close()

	for _, name := range []string{"audit", "allocate"} {
		if _, err := queue.Enqueue(ctx, "order:1042", name, nil, nil, asynq.Queue(name),
			asynq.TaskID("1042")); err != nil {
			panic(err)
		}
	}

	// A worker takes its task and its headers from asynq.
	allocate := parking.Task{Queue: "allocate", ID: "1042"}
	turn, err := queue.Join(ctx, allocate, "order:1042", parking.JoinOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d ahead of %s: %s is %s\n", turn.Ahead, allocate, turn.First, turn.FirstState)

	left, err := queue.Remove(ctx, turn.First, "order:1042") // when it has run
	if err != nil {
		panic(err)
	}
	fmt.Println("next:", left.Next)

	turn, err = queue.Join(ctx, allocate, "order:1042", parking.JoinOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d ahead of %s\n", turn.Ahead, allocate)
	// Output:
	// 1 ahead of allocate/1042: audit/1042 is pending
	// next: [allocate/1042]
	// 0 ahead of allocate/1042
}

// A task is in line as soon as it is enqueued.
func ExampleEngine_Enqueue() {
	ctx := context.Background()
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	queue, err := parking.New(client, parking.Options{})
	if err != nil {
		panic(err)
	}
	defer queue.Close()

	info, err := queue.Enqueue(ctx, "order:1042", "audit", []byte("1042"), nil, asynq.Queue("audits"))
	if errors.Is(err, parking.ErrNotInSequence) {
		err = nil // it is enqueued, and joins the line when it runs
	}
	if err != nil {
		panic(err)
	}
	left, err := queue.Front(ctx, "order:1042")
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Queue, info.State, left.Next[0].ID == info.ID)
	// Output: audits pending true
}

// asynq rounds the time of a delayed task down to whole seconds; this rounds it up.
func ExampleWholeSeconds() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 700_000_000, time.UTC)
	fmt.Println(parking.WholeSeconds(now, 2*time.Second))
	// Output: 2.3s
}
