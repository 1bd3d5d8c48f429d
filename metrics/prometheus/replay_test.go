package prometheus_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// replay gives the recording to a Prometheus server as its past, has it evaluate each of the alerts that it has loaded every
// 15 s, and compares those that would have fired with what is wanted.
func (r *recording) replay(t *testing.T, want []string) {
	t.Helper()
	dir, from := t.TempDir(), time.Now().Add(-3*time.Hour).Truncate(2*time.Hour) // one block of the store has two hours
	r.backfill(t, dir, from)
	s := startServer(t, dir, nil)
	got, err := s.fired(t.Context(), from, from.Add(time.Duration(r.n)*scrapeInterval))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the server has fired %v, %v; want %v", got, err, want)
	}
}

// backfill writes the recording into the store of a server that does not run.
func (r *recording) backfill(t *testing.T, dir string, from time.Time) {
	t.Helper()
	var text strings.Builder
	for series, values := range r.series {
		for n, value := range values {
			if value != "_" {
				fmt.Fprintf(&text, "%s %s %d\n", series, value, from.Add(time.Duration(n)*scrapeInterval).Unix())
			}
		}
	}
	text.WriteString("# EOF\n")
	file := filepath.Join(dir, "recording")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", file, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
}

// fired returns the alerts that fire in a period, by the rules that the server has loaded. They are evaluated as the server
// does: an alert fires once its expression has had the same series at each evaluation for as long as the rule says.
func (s *server) fired(ctx context.Context, from, to time.Time) (fired []string, err error) {
	var loaded struct {
		Groups []struct {
			Rules []struct {
				Name, Query string
				Duration    float64 // for how long the expression must have been true (s)
			}
		}
	}
	if err := s.get(ctx, "/api/v1/rules?type=alert", &loaded); err != nil {
		return nil, err
	}
	for _, group := range loaded.Groups {
		for _, rule := range group.Rules {
			var data struct{ Result []struct{ Values [][2]any } }
			query := url.Values{
				"query": {rule.Query}, "start": {fmt.Sprint(from.Unix())}, "end": {fmt.Sprint(to.Unix())},
				"step": {fmt.Sprint(scrapeInterval.Seconds())},
			}
			if err := s.get(ctx, "/api/v1/query_range?"+query.Encode(), &data); err != nil {
				return nil, err
			}
			for _, series := range data.Result {
				if lasts(series.Values) >= rule.Duration {
					fired = append(fired, rule.Name)
					break
				}
			}
		}
	}
	slices.Sort(fired)
	return fired, nil
}

// lasts returns for how long a series was there at each evaluation (s).
func lasts(values [][2]any) (longest float64) {
	var began, last float64
	for i, value := range values {
		at, _ := value[0].(float64)
		if i == 0 || at-last > scrapeInterval.Seconds() {
			began = at
		}
		last, longest = at, max(longest, at-began)
	}
	return longest
}
