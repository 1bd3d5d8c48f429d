package inspect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// An operator finds out who holds a key, and frees it.
func Example() {
	ctx := context.Background()
	server, err := embeddedredis.Start() // in production: asynq's Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	// A program holds the key and hangs.
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.Acquire(ctx, []string{"order:1042"}, locking.Options{Label: "worker-2/71/order:audit"})
	if err != nil {
		log.Fatal(err)
	}

	i, err := inspect.New(inspect.Options{Tasks: client})
	if err != nil {
		log.Fatal(err)
	}
	defer i.Close()
	state, err := i.Look(ctx, "order:1042", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held by", state.Holder.Label)

	_, err = i.Depose(ctx, "order:1042", inspect.Deposition{
		Expect: state.Holder.Owner, By: "ann", Why: "hangs since midnight",
		Floor: func(_ context.Context, floor int64) error {
			// UPDATE orders SET token = $1 WHERE id = 1042 AND token < $1
			fmt.Println("the database refuses smaller tokens:", floor > 0)
			return nil
		},
	})
	fmt.Println("deposed:", err == nil)
	fmt.Println("the holder:", lease.Renew(ctx))
	// Output:
	// held by worker-2/71/order:audit
	// the database refuses smaller tokens: true
	// deposed: true
	// the holder: locking: lease of ["order:1042"] is lost: the key was taken away: deposed by ann: hangs since midnight
}

// A program of an operator's own drops a task, and the audit says who did it.
func ExampleInspector_Audited() {
	ctx := context.Background()
	server, err := embeddedredis.Start() // in production: asynq's Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	i, err := inspect.New(inspect.Options{Tasks: client})
	if err != nil {
		log.Fatal(err)
	}
	defer i.Close()

	task := delayqueue.Task{Queue: "default", ID: "audit-1042"}
	s := inspect.Steering{Action: inspect.ActionDrop, Task: task, By: "ann", Why: "ordered twice"}
	err = i.Audited(ctx, s, func(ctx context.Context) (string, error) {
		return "deleted", i.Queue().Inspector().Drop(ctx, task)
	})
	fmt.Println(err)
	entries, err := i.Audit(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	e := entries[0]
	fmt.Println(e.Action, e.Task, e.Outcome, "by", e.By+":", e.Why)
	// Output:
	// delayqueue: task default/audit-1042 does not wait: it is gone
	// drop default/audit-1042 failed by ann: ordered twice
}
