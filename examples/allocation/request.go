package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// answer is what a request to allocate orders gets.
type answer struct {
	Allocated int       `json:"allocated"`
	Failed    []failure `json:"failed,omitempty"`
}

const (
	answerWithin = 10 * time.Second
	lookEvery    = 10 * time.Millisecond
)

// ServeHTTP allocates the orders of a request, which a person waits for. Orders that are held by other tasks are not
// waited for: the answer is then 409, with the list of the orders that are not allocated, and Retry-After.
func (w *warehouse) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var a allocation
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || len(a.Orders) == 0 {
		http.Error(out, "name the run and its orders", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	report, err := w.request(ctx, a)
	if err != nil {
		http.Error(out, "try again later", http.StatusServiceUnavailable)
		return
	}
	status := http.StatusOK
	if report.Err() != nil {
		var wait time.Duration
		for _, item := range report.Items {
			wait = max(wait, item.RetryAfter)
		}
		out.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		status = http.StatusConflict
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(answer{report.Done, failures(a, report)}) // the client may be gone
}

// request runs an allocation and waits for its end.
func (w *warehouse) request(ctx context.Context, a allocation) (items.Report, error) {
	info, err := w.client.Enqueue(ctx, requestType, a, asynq.Queue("request"), asynq.Retention(time.Minute))
	if err != nil {
		return items.Report{}, err
	}
	inspector := asynq.NewInspectorFromRedisClient(w.redis)
	for tick := time.NewTicker(lookEvery); ; {
		if info, err = inspector.GetTaskInfo(info.Queue, info.ID); err != nil {
			return items.Report{}, err
		}
		switch {
		case info.State == asynq.TaskStateCompleted && len(info.Result) == 0:
			return items.Report{Total: len(a.Orders), Done: len(a.Orders)}, nil
		case info.State == asynq.TaskStateCompleted:
			return items.ParseReport(info.Result)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return items.Report{}, context.Cause(ctx)
		}
	}
}

// demonstrateRequest asks for five orders, one of which is held at the moment, and prints the answer.
func (w *warehouse) demonstrateRequest(ctx context.Context, orders []order, out io.Writer) error {
	server := httptest.NewServer(w)
	defer server.Close()
	a := allocation{Run: "by hand"}
	for _, o := range orders[:min(5, len(orders))] {
		a.Orders = append(a.Orders, order{ID: o.ID}) // they take no more from the stock
	}
	held := middleware.Key("order", a.Orders[0].ID)
	opts := locking.Options{TTL: 10 * time.Second, Label: "Ms Miller's audit"}
	return locking.Do(ctx, w.worker.Locker(), []string{held}, opts, func(ctx context.Context, _ *locking.Lease) error {
		payload, err := json.Marshal(a)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(payload))
		if err != nil {
			return err
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		var got answer
		if err := json.NewDecoder(reply.Body).Decode(&got); err != nil {
			return fmt.Errorf("the answer %s cannot be read: %w", reply.Status, err)
		}
		fmt.Fprintf(out, "\nA person asks for %d orders while one is held. The answer is %s, Retry-After: %s;"+
			" %d are allocated.\n", len(a.Orders), reply.Status, reply.Header.Get("Retry-After"), got.Allocated)
		printTable(out, got.Failed)
		if reply.StatusCode != http.StatusConflict || got.Allocated != len(a.Orders)-1 || len(got.Failed) != 1 {
			return fmt.Errorf("the answer is %s with %+v, want 409 with one order", reply.Status, got)
		}
		return nil
	})
}
