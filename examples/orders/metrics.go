package main

import (
	"errors"
	"fmt"
	"net/http"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/worker"
)

// metrics are those of a worker, for Prometheus.
type metrics struct {
	*prometheus.Collector
	inspector *inspect.Inspector
	clients   []redis.UniversalClient
}

// newMetrics returns the metrics of a worker with this configuration. It does not connect.
func newMetrics(cfg worker.Config) (*metrics, error) {
	tasks := cfg.Redis.Connect()
	m := &metrics{clients: []redis.UniversalClient{tasks}}
	o := inspect.Options{Tasks: tasks}
	switch at := cfg.LockRedis; {
	case len(at.Nodes) > 0:
		o.Nodes, o.Redlock = at.NodeOptions(), locking.RedlockOptions{Guard: cfg.LockGuard}
	case at.Addr != "" || at.Master != "" || len(at.Cluster) > 0:
		o.Locks = at.Connect()
		m.clients = append(m.clients, o.Locks)
	}
	var err error
	if m.inspector, err = inspect.New(o); err != nil {
		return nil, errors.Join(fmt.Errorf("orders: metrics: %w", err), m.close())
	}
	m.Collector = prometheus.New(prometheus.Options{Inspector: m.inspector})
	return m, nil
}

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	registry := client.NewRegistry()
	registry.MustRegister(m.Collector)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// close ends the connections.
func (m *metrics) close() error {
	var errs []error
	if m.inspector != nil {
		errs = append(errs, m.inspector.Close())
	}
	for _, c := range m.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
