package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

type order struct{ ID string }

// runOrders starts a worker of which tasks meet each kind of conflict and lose a lease, again and again until the test
// ends. It returns an exporter of its metrics.
func runOrders(t *testing.T) *httptest.Server {
	t.Helper()
	tasks := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: tasks.Addr()})
	t.Cleanup(func() { rdb.Close() })
	inspector, err := inspect.New(inspect.Options{Tasks: rdb})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inspector.Close() })
	collector := prometheus.New(prometheus.Options{Inspector: inspector})
	registry := client.NewPedanticRegistry()
	registry.MustRegister(collector)
	exporter := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(exporter.Close)

	at := worker.Redis{Addr: tasks.Addr()}
	w, err := worker.New(worker.Config{Redis: at, Observer: collector.Observe, Concurrency: 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for kind, strategy := range map[string]middleware.Strategy{
		"park": middleware.Requeue{}, "fail": middleware.FailFast{},
		"limit": middleware.Requeue{Limits: delayqueue.Limits{Conflicts: 1}},
		"wait":  middleware.Wait{Max: time.Second},
		"lose":  nil,
	} {
		err := worker.Handle(w, kind, worker.Handler[order]{
			Strategy: strategy, TTL: time.Second, Keys: func(o order) []string { return []string{middleware.Key("order", o.ID)} },
			Run: func(ctx context.Context, o order) error {
				end := time.After(20 * time.Millisecond)
				if kind == "lose" {
					rdb.Set(context.WithoutCancel(ctx), "railtoken:lock:{"+middleware.Key("order", o.ID)+"}", "another program", 10*time.Millisecond)
					end = nil
				}
				select {
				case <-end:
				case <-ctx.Done():
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	enqueueOrders(t, at)
	return exporter
}

// enqueueOrders enqueues tasks until the test ends.
func enqueueOrders(t *testing.T, at worker.Redis) {
	t.Helper()
	producer, err := worker.NewClient(at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); <-ended; producer.Close() })
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ctx.Err() == nil; round++ {
			for _, kind := range []string{"park", "park", "wait", "fail", "limit", "lose"} {
				id := "1042"
				if kind == "lose" {
					id = fmt.Sprint("lost-", round)
				}
				_, err := producer.Enqueue(ctx, kind, order{id}, asynq.MaxRetry(0))
				if err != nil && ctx.Err() == nil {
					t.Errorf("enqueue: %v", err)
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
}

// dashboard is what the tests read of the Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Title, Description string
		Targets            []struct{ Expr string }
	}
}

// variables are Grafana's, as a query of the tests has them.
var variables = strings.NewReplacer("$__rate_interval", "10s", "$job", ".*", "$type", ".*", "$queue", ".*")

func TestEachPanelShowsData(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("grafana/railtoken.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	s := startServer(t, t.TempDir(), runOrders(t))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for _, panel := range board.Panels {
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("%s: no description, or no query", panel.Title)
		}
		for _, target := range panel.Targets {
			if err := s.await(ctx, variables.Replace(target.Expr), func(n float64) bool { return !math.IsNaN(n) && n >= 0 }); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
	}
	// The run had each of these. A panel could also show a series of zeros.
	for _, expr := range []string{
		`railtoken_attempts_total{outcome="acquired"}`, `railtoken_attempts_total{outcome="held"}`, `railtoken_waits_total`,
		`railtoken_conflicts_total{outcome="parked"}`, `railtoken_conflicts_total{outcome="waited"}`,
		`railtoken_conflicts_total{outcome="failed"}`, `railtoken_conflicts_total{outcome="limit"}`,
		`railtoken_wakes_total{by="release"}`, `railtoken_leases_lost_total{type="lose",reason="taken"}`,
		`railtoken_wait_seconds_count`, `railtoken_wake_seconds_count`, `railtoken_acquire_seconds_count{backend="redis"}`,
		`railtoken_hold_seconds_sum`, `railtoken_node_votes == 1`, `railtoken_inspect_up == 1`,
		`ALERTS{alertname="RailtokenLeaseLost",alertstate="firing"}`, `ALERTS{alertname="RailtokenLimitReached",alertstate="firing"}`,
	} {
		if err := s.await(ctx, expr, func(n float64) bool { return n > 0 }); err != nil {
			t.Error(err)
		}
	}
	s.rulesAreHealthy(t)
	for _, label := range []string{"key", "key_hash", "task"} {
		if found, err := s.query(ctx, `{__name__=~"railtoken_.*",`+label+`!=""}`); err != nil || len(found) > 0 {
			t.Errorf("the label %s: %v, %v", label, found, err)
		}
	}
}

// await waits until all series of a query are as they should be, and there is one.
func (s *server) await(ctx context.Context, expr string, fits func(float64) bool) error {
	return process.Poll(ctx, s.proc.Exited(), func() error {
		found, err := s.query(ctx, expr)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(found, func(s series) bool { return fits(s.number()) }) {
			return fmt.Errorf("%s has %v", expr, found)
		}
		return nil
	})
}

func (s *server) rulesAreHealthy(t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.get(t.Context(), "/api/v1/rules", &data); err != nil || len(data.Groups) != 1 {
		t.Fatalf("%+v, %v", data, err)
	}
	for _, r := range data.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
		}
	}
}

func TestAlertsFireOnFaultsAlone(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "railtoken.yml"}, {"test", "rules", "railtoken_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "rules"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// Each alert is tested, once where it must be silent and once where it must fire.
func TestEachAlertIsTestedAndDescribed(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, name := range []string{"rules/railtoken.yml", "rules/railtoken_test.yml", "../../docs/operations.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	found := 0
	for line := range strings.Lines(texts[0]) {
		_, name, ok := strings.Cut(line, "- alert: ")
		if name = strings.TrimSpace(name); !ok {
			continue
		}
		found++
		if strings.Count(texts[1], "alertname: "+name) < 2 || !strings.Contains(texts[2], "| "+name+" |") {
			t.Errorf("%s: tests or docs/operations.md lack it", name)
		}
	}
	if found < 7 {
		t.Errorf("only %d alerts found", found)
	}
}
