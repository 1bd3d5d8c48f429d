package profile

import (
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

func TestTheProfileOfOneNodeNamesFunctionsAndTheServer(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	env := report.Env{Dir: t.TempDir(), Reps: 1, Scale: 20, Run: regexp.MustCompile("P1"), Say: t.Logf}
	sections, err := Measure(t.Context(), env)
	if err != nil || len(sections) != 1 || len(sections[0].Tables) != 1 {
		t.Fatalf("got %+v, %v", sections, err)
	}
	table := sections[0].Tables[0]
	for _, name := range []string{"the client, all of it", "the servers"} {
		if !table.Has(name) || table.Row(name).Spread(perPair).Median <= 0 {
			t.Errorf("%s: %+v", name, table.Row(name))
		}
	}
	if len(table.Rows) < 5 {
		t.Errorf("only %d rows", len(table.Rows))
	}
	env.Run = regexp.MustCompile("nothing")
	if sections, err := Measure(t.Context(), env); err != nil || sections != nil {
		t.Errorf("what nobody asked for: %v, %v", sections, err)
	}
}

func TestTheOutputOfPprofIsRead(t *testing.T) {
	t.Parallel()
	functions, total, err := parseTop(`File: bench
Duration: 2s, Total samples = 1000ms (50.00%)
Showing nodes accounting for 330ms, 33.00% of 1000ms total
      flat  flat%   sum%        cum   cum%
     280ms 28.00% 28.00%      280ms 28.00%  internal/runtime/syscall/linux.Syscall6
   50.50ms  5.05% 33.05%      130ms 13.00%  runtime.unlock2 (inline)
`)
	if err != nil || total != time.Second || len(functions) != 2 ||
		functions[0] != (function{"linux.Syscall6", 280 * time.Millisecond}) || functions[1] != (function{"runtime.unlock2", 50500 * time.Microsecond}) {
		t.Errorf("got %+v of %v, %v", functions, total, err)
	}
	for _, text := range []string{"", "Showing nodes accounting for 1ms, 1% of 2ms total\n", "x% of ms total"} {
		if _, _, err := parseTop(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
