// Command webshop is an HTTP server that enqueues work on orders. It answers 409 with Retry-After while another task works on the order,
// and can wait for the result of a task.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
	"github.com/redis/go-redis/v9"
)

type order struct {
	ID string `json:"id"`
}

// cancel enqueues the cancellation of an order, unless the order is being worked on.
func cancel(producer *attach.Producer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		payload, err := json.Marshal(order{id})
		if err != nil {
			http.Error(w, "no such order", http.StatusBadRequest)
			return
		}
		_, err = producer.EnqueueContext(r.Context(), asynq.NewTask("order:cancel", payload),
			attach.Keys(middleware.Key("order", id)), attach.WhenHeld(middleware.FailFast{}))
		if held, ok := errors.AsType[*middleware.ConflictError](err); ok {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(held.RetryAfter.Seconds()))))
			http.Error(w, "the order is being worked on", http.StatusConflict)
			return
		}
		if err != nil {
			log.Printf("enqueue: %v", err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

// invoice returns the invoice of an order, which a worker makes.
func invoice(producer *attach.Producer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		payload, err := json.Marshal(order{id})
		if err != nil {
			http.Error(w, "no such order", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		task, err := producer.EnqueueContext(ctx, asynq.NewTask("order:invoice", payload),
			attach.Keys(middleware.Key("order", id)), asynq.Retention(time.Minute), asynq.MaxRetry(0))
		var text []byte
		if err == nil {
			text, err = producer.Wait(ctx, task)
		}
		switch {
		case errors.Is(err, attach.ErrArchived), errors.Is(err, attach.ErrDiscarded):
			http.Error(w, "there is no invoice", http.StatusUnprocessableEntity)
		case err != nil:
			log.Printf("invoice: %v", err)
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if _, err := w.Write(text); err != nil {
				log.Printf("invoice: %v", err)
			}
		}
	}
}

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	listen := flag.String("listen", "127.0.0.1:8080", "address of this server")
	flag.Parse()
	rdb := redis.NewClient(&redis.Options{Addr: *addr})
	producer, err := attach.NewProducer(rdb, attach.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Addr: *listen, Handler: shop(producer), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func shop(producer *attach.Producer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/cancel", cancel(producer))
	mux.Handle("POST /orders/{id}/invoice", invoice(producer))
	return mux
}
