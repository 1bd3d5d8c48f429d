package delayqueue_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// Two tasks for one order are enqueued for different queues. Whichever a worker gets first, the audit has its turn first.
func ExampleQueue_Turn() {
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

	for _, name := range []string{"audit", "allocate"} {
		task := asynq.NewTask(name, nil, asynq.Queue(name), asynq.TaskID("1042"))
		if _, err := queue.Enqueue(ctx, "order:1042", task); err != nil {
			panic(err)
		}
	}

	// A worker takes its task and its headers from asynq.
	allocate := delayqueue.Task{Queue: "allocate", ID: "1042"}
	turn, err := queue.Turn(ctx, allocate, "order:1042", delayqueue.TurnOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d ahead of %s: %s is %s\n", turn.Ahead, allocate, turn.First, turn.FirstState)

	left, err := queue.LeaveLine(ctx, turn.First, "order:1042") // when it has run
	if err != nil {
		panic(err)
	}
	fmt.Println("next:", left.Next)

	turn, err = queue.Turn(ctx, allocate, "order:1042", delayqueue.TurnOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d ahead of %s\n", turn.Ahead, allocate)
	// Output:
	// 1 ahead of allocate/1042: audit/1042 is pending
	// next: [allocate/1042]
	// 0 ahead of allocate/1042
}

// A task brings its place with it, in its headers, to wherever it runs.
func ExampleQueue_Enqueue() {
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

	info, err := queue.Enqueue(ctx, "order:1042", asynq.NewTask("audit", nil, asynq.Queue("audits")))
	if err != nil {
		panic(err)
	}
	task := delayqueue.Task{Queue: info.Queue, ID: info.ID}
	at, ok := delayqueue.PlaceOf(task, "order:1042", info.Headers)
	if !ok {
		panic("no place")
	}
	turn, err := queue.Turn(ctx, task, "order:1042", delayqueue.TurnOptions{At: at})
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Queue, info.State, turn.Ahead, turn.At.Equal(at))
	// Output: audits pending 0 true
}
