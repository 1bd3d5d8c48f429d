//go:build engine

package docker

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
)

// fetch returns the status and the text of a page of a service, as a browser on this machine gets it under a name of a host.
func (s *stack) fetch(service, port, path, host string) (int, string, error) {
	s.Helper()
	addr := must(s, s.compose("port", service, port)...)
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		s.Fatalf("%s is published at %s", service, addr)
	}
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// query reads an answer of Prometheus.
func (s *stack) query(path string, data any) error {
	s.Helper()
	status, text, err := s.fetch("prometheus", "9090", path, "")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: status %d: %s", path, status, text)
	}
	return json.Unmarshal([]byte(text), &struct{ Data any }{data})
}

// values returns the numbers that a query has as its result.
func (s *stack) values(expr string) (numbers []float64) {
	s.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	if err := s.query("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		s.Logf("%s: %v", expr, err)
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// panel is what we read of a panel of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// readPanels returns the panels of the dashboard.
func readPanels(t testing.TB) []panel {
	t.Helper()
	text, err := os.ReadFile("../metrics/prometheus/grafana/railtoken.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	return board.Panels
}

func TestContainersOfWorkersAreWatched(t *testing.T) {
	t.Parallel()
	s := newStack(t, profile{suffix: "-observability", queues: "redis"}, "observability", "observability")
	services := []string{"prometheus", "admin"}
	if _, err := docker(t, "image", "inspect", readCompose(t)["grafana"].Image); err == nil { // docker-images.sh says if not
		services = append(services, "grafana")
	}
	s.up(services...)
	s.produce()
	for _, service := range services {
		s.healthy("healthy", s.container(service, 1))
	}
	await(t, "both workers are scraped", func() bool { n := s.values(`sum(up{job="orders"})`); return len(n) == 1 && n[0] == 2 })
	s.produce() // so that the counters go on while they are scraped

	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", "orders", "$type", ".*", "$queue", ".*")
	for _, p := range readPanels(t) {
		if p.Title == "Lost leases" {
			continue // none is lost
		}
		for _, target := range p.Targets {
			await(t, p.Title, func() bool { return len(s.values(variables.Replace(target.Expr))) > 0 })
		}
	}
	await(t, "runs are counted", func() bool {
		n := s.values(`sum(increase(railtoken_attempts_total{outcome="acquired"}[5m]))`)
		return len(n) == 1 && n[0] > 0
	})
	if n := s.values(`count({__name__=~"railtoken_.*",key!=""})`); len(n) > 0 {
		t.Errorf("%v series have the label key", n)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.query("/api/v1/rules", &rules); err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 7 {
		t.Fatalf("the rules are %+v, %v", rules, err)
	}
	for _, r := range rules.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
		}
	}

	hasNoRights(t, s.container("admin", 1))
	status, text, err := s.fetch("admin", "8090", "/workers", "localhost:8090")
	if err != nil || status != http.StatusOK {
		t.Fatalf("the admin page: %d, %v: %s", status, err, text)
	}
	first, second := s.workers()
	for _, worker := range []string{first, second} {
		if host := must(t, "inspect", "-f", "{{.Config.Hostname}}", worker); !strings.Contains(text, host) {
			t.Errorf("the admin page does not show %s:\n%s", host, text)
		}
	}
	if status, text, err := s.fetch("admin", "8090", "/", "attacker.example"); err != nil || status != http.StatusMisdirectedRequest {
		t.Errorf("the admin page under a foreign name: %d, %v: %s", status, err, text)
	}
	if len(services) == 3 {
		s.showsTheDashboard()
	}
}

// showsTheDashboard checks that Grafana has the dashboard, and a Prometheus that answers.
func (s *stack) showsTheDashboard() {
	s.Helper()
	for path, want := range map[string]string{
		"/api/dashboards/uid/railtoken":                               "Longest wait",
		"/api/datasources/proxy/uid/prometheus/api/v1/query?query=up": `"success"`,
	} {
		status, text, err := s.fetch("grafana", "3000", path, "")
		if err != nil || status != http.StatusOK || !strings.Contains(text, want) {
			s.Errorf("Grafana, %s: %d, %v: %s", path, status, err, text)
		}
	}
}
