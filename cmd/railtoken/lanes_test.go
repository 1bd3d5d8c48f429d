package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The command moves tasks into lanes, learns of the number of lanes from then on, and finds the tasks where they are.
func TestTasksMoveIntoLanesAndAreFoundThere(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	t.Setenv("RAILTOKEN_REDIS_CLUSTER", strings.Join(cluster.Addrs(), ","))
	t.Setenv("RAILTOKEN_LANES", "")
	producer, err := worker.NewClientWith(worker.Redis{Cluster: cluster.Addrs()}, attach.ProducerOptions{
		Keys: map[string]middleware.KeyFunc{"audit": middleware.PayloadKey(func(j job) string { return j.Key })},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for _, id := range []string{"one", "two", "three"} {
		_, err := producer.Enqueue(t.Context(), "audit", job{Key: id}, asynq.Queue("orders"), asynq.TaskID(id), asynq.ProcessIn(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	client := cluster.Client(t)
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("audit", nil), asynq.Queue("orders"), asynq.TaskID("plain")); err != nil {
		t.Fatal(err)
	}

	if _, errOut, status := call(t, "lanes", "plan"); status != exitError || !strings.Contains(errOut, "--lanes") {
		t.Errorf("without a number of lanes: %d, %s", status, errOut)
	}
	for _, words := range [][]string{{"plan"}, {"move", "--yes"}} {
		out := must(t, exitOK, append([]string{"lanes"}, append(words, "--lanes", "16", "--queue", "orders", "--json")...)...)
		var got struct{ Queues []movesJSON }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Queues) != 1 || got.Queues[0].States["scheduled"] != 3 || got.Queues[0].Tasks != 3 || len(got.Queues[0].Stays) != 1 {
			t.Errorf("%v: %s", words, out)
		}
	}

	if err := os.Unsetenv("RAILTOKEN_LANES"); err != nil { // that --lanes has set
		t.Fatal(err)
	}
	if out := must(t, exitFound, "explain", "orders/one"); !strings.Contains(out, "orders@") {
		t.Errorf("a task is looked for in its queue, and not found in its lane: %s", out)
	}
	if out := must(t, exitFound, "explain", "two"); !strings.Contains(out, "orders@") {
		t.Errorf("a task is looked for by its ID: %s", out)
	}
	if out := must(t, exitFound, "explain", "orders/plain"); !strings.Contains(out, "orders/plain") {
		t.Errorf("a task that stays is looked for: %s", out)
	}
	for _, name := range []string{hostile, "a{b"} {
		out, errOut, _ := call(t, "lanes", "plan", "--queue", name)
		if strings.Contains(out+errOut, "\x1b") || name != hostile && !strings.Contains(errOut, "brace") {
			t.Errorf("of the queue %q there is said %q", name, out+errOut)
		}
	}
	if out := must(t, exitOK, "audit", "--json"); !strings.Contains(out, `"move"`) {
		t.Errorf("the audit has no move: %s", out)
	}
	t.Setenv("RAILTOKEN_LANES", "32")
	if _, errOut, status := call(t, "keys"); status != exitError || !strings.Contains(errOut, "the tasks have 16") {
		t.Errorf("with another number of lanes: %d, %s", status, errOut)
	}
	if err := os.Unsetenv("RAILTOKEN_LANES"); err != nil {
		t.Fatal(err)
	}

	// A move that was interrupted has taken a task.
	if err := client.HSet(context.Background(), "railtoken:move:{orders}", "t:plain", "pending 0 - orders@0-3PY").Err(); err != nil {
		t.Fatal(err)
	}
	if _, errOut, status := call(t, "uninstall", "--yes"); status != exitError || !strings.Contains(errOut, "has not ended") {
		t.Errorf("uninstall during a move: %d, %s", status, errOut)
	}
}

func TestATaskIsLookedForInAllLanesOfItsQueue(t *testing.T) {
	t.Parallel()
	queues := []string{"a/b", "orders@16-1sb", "orders@17-1Mk"} // two lanes of 64
	for arg, want := range map[string]string{
		"orders/x": "orders/x: [orders@17-1Mk/x]", "orders@17-1Mk/x": "orders@17-1Mk/x: [orders@17-1Mk/x]", "a/b/c/d": "a/b/c/d: [a/b/c/d]",
		"other/x": "other/x: []", "x": "/x: [a/b/x orders@16-1sb/x orders@17-1Mk/x]",
	} {
		named, meant := candidates(queues, arg)
		var names []string
		for _, m := range meant {
			names = append(names, m.String())
		}
		slices.Sort(names)
		if got := named.String() + ": [" + strings.Join(names, " ") + "]"; got != want {
			t.Errorf("%s may be %s, want %s", arg, got, want)
		}
	}
}

func TestAQueueIsPausedAndUnpaused(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	t.Setenv("RAILTOKEN_REDIS_CLUSTER", strings.Join(cluster.Addrs(), ","))
	producer, err := worker.NewClient(worker.Redis{Cluster: cluster.Addrs(), Lanes: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if _, err := producer.Enqueue(t.Context(), "audit", job{Key: "k"}, asynq.Queue("orders"), attach.Keys("k")); err != nil {
		t.Fatal(err)
	}
	l, _ := lanes.New(16)
	paused := func() (n int) {
		for _, queue := range l.Queues("orders") {
			n += int(cluster.Client(t).Exists(t.Context(), "asynq:{"+queue+"}:paused").Val())
		}
		return n
	}
	for _, step := range []struct {
		command, says string
		marks         int
	}{
		{"pause", "orders is paused\n", 17},
		{"pause", "orders is paused, as before\n", 17},
		{"unpause", "orders is not paused\n", 0},
		{"unpause", "orders is not paused, as before\n", 0},
	} {
		if out := must(t, exitOK, step.command, "orders", "--why", "stock-taking"); out != step.says || paused() != step.marks {
			t.Errorf("%s says %q, and %d are paused", step.command, out, paused())
		}
	}
	if _, errOut, status := call(t, "pause", "ordres"); status != exitError || !strings.Contains(errOut, "correct its name") {
		t.Errorf("another name: %d, %s", status, errOut)
	}
	if out := must(t, exitOK, "audit"); strings.Count(out, "unpaused") < 2 || !strings.Contains(out, "stock-taking") {
		t.Errorf("the audit is %s", out)
	}
}
