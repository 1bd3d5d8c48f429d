package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// A worker counts its events. In production promhttp.Handler serves the registry.
func Example() {
	server, err := embeddedredis.Start() // in production: asynq's Redis
	check(err)
	defer server.Close()
	at := worker.Redis{Addr: server.Addr()}

	collector := prometheus.New(prometheus.Options{}) // with an inspect.Inspector it has gauges, too
	registry := client.NewRegistry()
	registry.MustRegister(collector)
	w, err := worker.New(worker.Config{
		Redis: at, Observer: collector.Observe, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	check(worker.Handle(w, "order:audit", worker.Handler[order]{
		Keys: func(o order) []string { return []string{middleware.Key("order", o.ID)} },
		Run:  func(context.Context, order) error { stop(); return nil },
	}))
	tasks, err := worker.NewClient(at)
	check(err)
	defer tasks.Close()
	_, err = tasks.Enqueue(ctx, "order:audit", order{"1042"})
	check(err)
	check(w.Run(ctx))

	families, err := registry.Gather()
	check(err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); n > 0 {
				fmt.Println(family.GetName(), n)
			}
		}
	}
	// Output:
	// railtoken_acquire_seconds 1
	// railtoken_attempts_total 1
	// railtoken_hold_seconds 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
