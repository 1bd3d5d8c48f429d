package prometheus_test

import (
	"context"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/middleware"
)

// gather returns the sum of each metric.
func gather(t *testing.T, from client.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			all[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestConcurrentEventsAreAllCounted(t *testing.T) {
	t.Parallel()
	c, registry := prometheus.New(prometheus.Options{}), client.NewPedanticRegistry()
	registry.MustRegister(c)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				c.Observe(context.Background(), middleware.Event{
					Kind: middleware.Acquired, Type: "t\xff", Task: delayqueue.Task{Queue: "q"}, Waited: time.Second, Keys: []string{"a"},
				})
				gather(t, registry)
			}
		})
	}
	all.Wait()
	got := gather(t, registry)
	if got["railtoken_attempts_total"] != 800 || got["railtoken_wait_seconds"] != 800 || got["railtoken_conflicts_total"] != 800 {
		t.Errorf("%v", got)
	}
	if _, found := got["railtoken_parked"]; found {
		t.Error("there are gauges without an Inspector")
	}
}

func TestCountersAreScrapedWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	i, err := inspect.New(inspect.Options{Tasks: rdb})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	c, registry := prometheus.New(prometheus.Options{Inspector: i}), client.NewPedanticRegistry()
	registry.MustRegister(c)
	server.Pause()
	c.Observe(t.Context(), middleware.Event{Kind: middleware.Refused})
	began := time.Now()
	got := gather(t, registry)
	if up, found := got["railtoken_inspect_up"]; !found || up != 0 || got["railtoken_waits_total"] != 1 {
		t.Errorf("%v", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a scrape took %v", took)
	}
	server.Resume()
	deadline := time.Now().Add(30 * time.Second)
	for gather(t, registry)["railtoken_inspect_up"] != 1 {
		if time.Now().After(deadline) {
			t.Fatal("the gauges do not come back")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// A task without a conflict has these two events.
func BenchmarkObserve(b *testing.B) {
	c := prometheus.New(prometheus.Options{})
	e := middleware.Event{Type: "t", Task: delayqueue.Task{Queue: "q", ID: "1"}, Keys: []string{"order:1042"}, Backend: "redis"}
	for b.Loop() {
		e.Kind, e.Took, e.Held = middleware.Acquired, time.Millisecond, 0
		c.Observe(b.Context(), e)
		e.Kind, e.Took, e.Held = middleware.Released, 0, time.Second
		c.Observe(b.Context(), e)
	}
}
