package inspect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestNodesSayWhichServersVote(t *testing.T) {
	t.Parallel()
	addrs, servers := redlockNodes(t, 3)
	servers[2].Kill()
	tasks := redistest.Start(t).Client(t)
	i := newInspector(t, inspect.Options{Tasks: tasks, Nodes: addrs, Redlock: locking.RedlockOptions{MaxTTL: time.Hour}})
	nodes, err := i.Nodes(t.Context())
	if err != nil || len(nodes) != 3 {
		t.Fatalf("the nodes are %+v, %v", nodes, err)
	}
	n := nodes[0]
	if n.Err != nil || n.Addr != addrs[0].Addr || n.Version == "" || n.Role != "master" || len(n.RunID) != 40 ||
		n.Latency <= 0 || n.Skew.Abs() > time.Second+n.Latency {
		t.Errorf("the first one is %+v", n)
	}
	if !strings.Contains(n.Refused, "nobody has watched its process") || n.VotesIn < 50*time.Minute {
		t.Errorf("a server that has just started is refused for %q, %v", n.Refused, n.VotesIn)
	}
	if nodes[2].Err == nil {
		t.Errorf("the dead one is %+v", nodes[2])
	}
	single := newInspector(t, inspect.Options{Tasks: tasks})
	if nodes, err = single.Nodes(t.Context()); err != nil || len(nodes) != 1 || nodes[0].Refused != "" {
		t.Errorf("one server is %+v, %v", nodes, err)
	}
}
