package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
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

func TestAnInvoiceIsWhatTheTaskReturns(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	a, err := attach.New(client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	worker := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	key := middleware.PayloadKey(func(o order) string { return middleware.Key("order", o.ID) })
	if err := worker.Start(a.Lock(key)(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var o order
		if err := json.Unmarshal(task.Payload(), &o); err != nil || o.ID == "0" {
			return errors.Join(err, asynq.SkipRetry)
		}
		_, err := fmt.Fprintf(task.ResultWriter(), "invoice of order %s", o.ID)
		return err
	}))); err != nil {
		t.Fatal(err)
	}
	defer worker.Shutdown()
	server := httptest.NewServer(shop(a.Producer(nil)))
	defer server.Close()
	for id, want := range map[string]struct {
		status int
		text   string
	}{"1042": {http.StatusOK, "invoice of order 1042"}, "0": {http.StatusUnprocessableEntity, "there is no invoice\n"}} {
		answer, err := http.Post(server.URL+"/orders/"+id+"/invoice", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != want.status || string(text) != want.text {
			t.Errorf("order %s is answered with %s, %q, %v", id, answer.Status, text, err)
		}
		answer.Body.Close()
	}
}
