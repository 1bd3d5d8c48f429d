package worker_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/worker"
)

// BenchmarkTask runs tasks that do nothing, each with a key of its own, from asynq's queue to their acknowledgement.
func BenchmarkTask(b *testing.B) {
	at := worker.Redis{Addr: redistest.Start(b).Addr()}
	client, err := worker.NewClient(at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	w, err := worker.New(worker.Config{Redis: at, Concurrency: 32})
	if err != nil {
		b.Fatal(err)
	}
	var done atomic.Int64
	all := make(chan struct{})
	err = worker.Handle(w, "work", worker.Handler[int]{
		Keys: func(n int) []string { return []string{strconv.Itoa(n)} },
		Run: func(context.Context, int) error {
			if done.Add(1) == int64(b.N) {
				close(all)
			}
			return nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		if _, err := client.Enqueue(b.Context(), "work", i); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	select {
	case <-all:
	case <-b.Context().Done():
	}
	b.StopTimer()
	if err := w.Shutdown(); err != nil {
		b.Error(err)
	}
}

// BenchmarkEnqueue adds a task.
func BenchmarkEnqueue(b *testing.B) {
	client, err := worker.NewClient(worker.Redis{Addr: redistest.Start(b).Addr()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Enqueue(b.Context(), "work", 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEnqueueInOrder adds a task at the end of the sequence of one of a hundred keys.
func BenchmarkEnqueueInOrder(b *testing.B) {
	client, err := worker.NewClient(worker.Redis{Addr: redistest.Start(b).Addr()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := client.EnqueueInOrder(b.Context(), strconv.Itoa(i%100), "work", 1); err != nil {
			b.Fatal(err)
		}
	}
}
