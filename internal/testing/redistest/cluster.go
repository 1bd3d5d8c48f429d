package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

const (
	clusterSlots = 16384
	// busPortOffset is what redis-server adds to its port for the connections between cluster nodes.
	busPortOffset = 10000
)

// A Cluster is a Redis Cluster of masters that belongs to one test. They have no replicas until [Cluster.AddReplicas].
type Cluster struct {
	nodes    []*Server
	replicas []*Server // of each node, if there are any
}

// clusterArgs are the arguments of a node.
func clusterArgs() []string {
	return []string{"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "5000"}
}

// StartCluster runs n masters that share the hash slots evenly and returns when every one of them sees the whole cluster in
// order. That takes about two seconds, because a node waits so long before it accepts writes. The nodes are stopped at the end
// of the test; where no redis-server is installed, the test ends as with [Start]. With -short it is left out.
func StartCluster(tb testing.TB, n int) *Cluster {
	tb.Helper()
	testserver.LeaveToLong(tb)
	if n < 1 {
		tb.Fatalf("redistest: a cluster of %d nodes", n)
	}
	c := &Cluster{}
	for range n {
		c.nodes = append(c.nodes, Start(tb, clusterArgs()...))
	}
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := c.join(ctx); err != nil {
		tb.Fatal(err)
	}
	for _, s := range c.nodes {
		if err := process.Poll(ctx, nil, func() error { return inOrder(ctx, s, n, n) }); err != nil {
			tb.Fatalf("redistest: node %s does not see the whole cluster: %v", s.Addr(), err)
		}
	}
	return c
}

// Nodes returns the masters. Node i of n serves the slots from i*16384/n up to the next node's first.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs returns the address of each master, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Client returns a new client of the cluster, closed at the end of the test. Each mod may change its options first.
func (c *Cluster) Client(tb testing.TB, mod ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	opt := &redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		MaintNotificationsConfig: c.nodes[0].options().MaintNotificationsConfig,
	}
	for _, m := range mod {
		m(opt)
	}
	return closing(tb, redis.NewClusterClient(opt))
}

// AsCluster returns a client that takes a server for a Redis Cluster of one node, closed at the end of the test. What is done in steps on
// a Cluster is done so here, at once and without a wait for nodes; but Redis refuses no call for keys of several slots.
func (s *Server) AsCluster(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	slots := []redis.ClusterSlot{{End: clusterSlots - 1, Nodes: []redis.ClusterNode{{Addr: s.Addr()}}}}
	return closing(tb, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{s.Addr()}, MaintNotificationsConfig: s.options().MaintNotificationsConfig,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil },
	}))
}

// join gives each node its slots and an epoch of its own, and introduces all of them to the first.
func (c *Cluster) join(ctx context.Context) error {
	n := len(c.nodes)
	for i, s := range c.nodes {
		if err := c.nodes[0].meet(ctx, s, i+1, i*clusterSlots/n, (i+1)*clusterSlots/n-1); err != nil {
			return fmt.Errorf("redistest: node %s: %w", s.Addr(), err)
		}
	}
	return nil
}

// meet gives another node, or s itself, its epoch and its slots and introduces it to s.
func (s *Server) meet(ctx context.Context, other *Server, epoch, firstSlot, lastSlot int) error {
	client := other.impatient()
	defer client.Close()
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", epoch).Err(); err != nil {
		return err
	}
	if err := client.ClusterAddSlotsRange(ctx, firstSlot, lastSlot).Err(); err != nil {
		return err
	}
	if other == s {
		return nil
	}
	return client.ClusterMeet(ctx, loopback, strconv.Itoa(s.port)).Err()
}

// inOrder succeeds when this node sees so many nodes, and masters that serve all slots.
func inOrder(ctx context.Context, s *Server, nodes, masters int) error {
	client := s.impatient()
	defer client.Close()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	fields := parseFields(info)
	for name, want := range map[string]string{
		"cluster_state":       "ok",
		"cluster_known_nodes": strconv.Itoa(nodes),
		"cluster_size":        strconv.Itoa(masters), // the masters that serve slots
		"cluster_slots_ok":    strconv.Itoa(clusterSlots),
	} {
		if fields[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, fields[name], want)
		}
	}
	return nil
}

// parseFields reads the name:value lines of CLUSTER INFO.
func parseFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
