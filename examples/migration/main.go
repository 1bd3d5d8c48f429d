// Command migration is a program on its way to railtoken: docs/migration.md explains its steps. Its handlers are locked, also against workers
// of the version before, which take a lock of their own by SETNX.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

type order struct {
	ID string `json:"id"`
}

var errBusy = errors.New("the order is busy")

// before is the handler as it was: a conflict is an error, which uses up a retry, and nothing renews the lock.
func before(rdb *redis.Client) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		var o order
		if err := json.Unmarshal(task.Payload(), &o); err != nil {
			return err
		}
		taken, err := rdb.SetNX(ctx, "lock:"+o.ID, task.ResultWriter().TaskID(), 30*time.Second).Result()
		if err != nil {
			return err
		}
		if !taken {
			return errBusy
		}
		defer rdb.Del(ctx, "lock:"+o.ID)
		return allocate(ctx, o)
	}
}

// after is the handler with railtoken: its work, and nothing else.
func after(ctx context.Context, task *asynq.Task) error {
	var o order
	if err := json.Unmarshal(task.Payload(), &o); err != nil {
		return err
	}
	return allocate(ctx, o)
}

// allocate is what the handler is for. The context ends when the lease does.
func allocate(ctx context.Context, o order) error {
	log.Printf("allocating %s", o.ID)
	return ctx.Err()
}

// attached returns the locks of a server. With shared, their names are those of before, so that workers of both versions exclude each other.
func attached(rdb *redis.Client, cfg asynq.Config, shared bool) (*attach.Attached, error) {
	if !shared {
		return attach.New(rdb, cfg, attach.Options{})
	}
	locks, err := locking.NewSingle(rdb, locking.SingleOptions{
		RedisKey: func(key string) string { return "lock:" + key },
	})
	if err != nil {
		return nil, err
	}
	return attach.New(rdb, cfg, attach.Options{Locker: locks, RedisKeys: locks.RedisKeys})
}

// enqueue enqueues an order's tasks.
func enqueue(ctx context.Context, client *asynq.Client, o order) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	// Unique stays where a second task would do the same work again, and goes where it kept two tasks apart.
	if _, err := client.EnqueueContext(ctx, asynq.NewTask("order:refresh", payload), asynq.Unique(time.Minute)); err != nil &&
		!errors.Is(err, asynq.ErrDuplicateTask) {
		return err
	}
	_, err = client.EnqueueContext(ctx, asynq.NewTask("order:allocate", payload))
	return err
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	old := flag.Bool("before", false, "run the version before")
	shared := flag.Bool("shared", true, "use the names of the locks of the version before")
	flag.Parse()
	rdb := redis.NewClient(&redis.Options{Addr: *addr})
	if err := enqueue(context.Background(), asynq.NewClientFromRedisClient(rdb), order{"1042"}); err != nil {
		log.Fatal(err)
	}
	cfg := asynq.Config{Concurrency: 10}
	mux := asynq.NewServeMux()
	if *old {
		mux.Handle("order:", before(rdb))
		log.Fatal(asynq.NewServerFromRedisClient(rdb, cfg).Run(mux))
	}
	locks, err := attached(rdb, cfg, *shared)
	if err != nil {
		log.Fatal(err)
	}
	lock := locks.Lock(middleware.PayloadKey(func(o order) string { return o.ID }))
	mux.Handle("order:", lock(asynq.HandlerFunc(after)))
	if err := asynq.NewServerFromRedisClient(locks.Client(), locks.Config()).Run(mux); err != nil {
		log.Fatal(err)
	}
	if err := locks.Close(); err != nil {
		log.Fatal(err)
	}
}
