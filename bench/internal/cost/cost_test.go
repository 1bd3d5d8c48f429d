package cost

import (
	"context"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

// measureOnce measures once what the pattern names.
func measureOnce(t *testing.T, run string) *results.Results {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &results.Results{Rounds: 1}
	env := &measure.Env{Dir: t.TempDir(), Rounds: 1, Scale: 2, Run: regexp.MustCompile(run), Say: t.Logf, Results: r}
	if err := Measure(ctx, env); err != nil {
		t.Fatal(err)
	}
	return r
}
