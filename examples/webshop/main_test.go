package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestAHeldOrderIsAnsweredWith409(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	producer, err := attach.NewProducer(client, attach.ProducerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	server := httptest.NewServer(shop(producer))
	defer server.Close()
	cancel := func(id string, want int) http.Header {
		answer, err := http.Post(server.URL+"/orders/"+id+"/cancel", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("order %s is answered with %s, want %d", id, answer.Status, want)
		}
		return answer.Header
	}

	err = locking.Do(t.Context(), locker, []string{"order:1042"}, locking.Options{}, func(context.Context, *locking.Lease) error {
		if after, err := strconv.Atoi(cancel("1042", http.StatusConflict).Get("Retry-After")); err != nil || after < 1 || after > 30 {
			t.Errorf("try again after %d s, %v", after, err)
		}
		cancel("1043", http.StatusAccepted)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel("1042", http.StatusAccepted)
	tasks, err := asynq.NewInspectorFromRedisClient(client).ListPendingTasks("default")
	if err != nil || len(tasks) != 2 {
		t.Errorf("%d tasks are pending, %v; want 2", len(tasks), err)
	}
}
