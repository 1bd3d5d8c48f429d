// Command plain is an ordinary asynq app: two handlers that may work on the same order at the same time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type order struct {
	ID string `json:"id"`
}

func audit(_ context.Context, task *asynq.Task) error    { return work("audit", task) }
func allocate(_ context.Context, task *asynq.Task) error { return work("allocate", task) }

// work stands for what a handler does.
func work(what string, task *asynq.Task) error {
	var o order
	if err := json.Unmarshal(task.Payload(), &o); err != nil {
		return err
	}
	log.Printf("%s %s begins", what, o.ID)
	time.Sleep(100 * time.Millisecond)
	log.Printf("%s %s ends", what, o.ID)
	return nil
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	flag.Parse()
	rdb := redis.NewClient(&redis.Options{Addr: *addr})

	tasks := asynq.NewClientFromRedisClient(rdb)
	for _, id := range []string{"1041", "1042", "1043"} {
		payload, err := json.Marshal(order{id})
		if err != nil {
			log.Fatal(err)
		}
		for _, kind := range []string{"order:audit", "order:allocate"} {
			if _, err := tasks.Enqueue(asynq.NewTask(kind, payload)); err != nil {
				log.Fatal(err)
			}
		}
	}

	cfg := asynq.Config{Concurrency: 10}
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	mux := asynq.NewServeMux()
	mux.HandleFunc("order:audit", audit)
	mux.HandleFunc("order:allocate", allocate)
	if err := srv.Run(mux); err != nil {
		log.Fatal(err)
	}
}
