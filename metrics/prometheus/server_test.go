package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// program returns the path of a program. Without it the test is skipped, or fails when REDISTEST_REQUIRE is set.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	testserver.Needed(t, name, err)
	return path
}

// server is a Prometheus.
type server struct {
	addr string
	proc *process.Process
}

// startServer runs a Prometheus on a folder, with the shipped rules. It scrapes target 5 times a second; nothing when it is nil.
func startServer(t *testing.T, dir string, target *httptest.Server) *server {
	t.Helper()
	bin := program(t, "prometheus")
	rules, err := filepath.Abs("rules/railtoken.yml")
	if err != nil {
		t.Fatal(err)
	}
	config, log := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "log")
	text := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [%q]\n", rules)
	if target != nil {
		text += fmt.Sprintf("scrape_configs: [{job_name: orders, static_configs: [{targets: [%q]}]}]\n",
			strings.TrimPrefix(target.URL, "http://"))
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: net.JoinHostPort(process.Loopback, strconv.Itoa(port))}
	s.proc, err = process.Start(process.Command{
		Path: bin, Dir: dir, Log: log,
		Args: []string{"--config.file=" + config, "--storage.tsdb.path=" + dir, "--web.listen-address=" + s.addr},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.proc.Kill(); <-s.proc.Exited() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := process.Poll(ctx, s.proc.Exited(), func() error { return s.get(ctx, "/-/ready", nil) }); err != nil {
		t.Fatalf("Prometheus did not start: %v; its log ends:\n%s", err, process.LogTail(log, 0))
	}
	return s
}

// get reads an answer of the server into data, if that is not nil.
func (s *server) get(ctx context.Context, path string, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if data == nil {
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", res.Status)
		}
		return nil
	}
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", path, body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

// series is one result of a query.
type series struct {
	Metric map[string]string
	Value  [2]any
}

func (s series) number() float64 {
	text, _ := s.Value[1].(string)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return -1
	}
	return n
}

func (s *server) query(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}
