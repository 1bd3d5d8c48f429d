package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// AddReplicas gives each master a replica, and returns when every node knows all others and the replicas follow.
func (c *Cluster) AddReplicas(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	for range c.nodes {
		c.replicas = append(c.replicas, Start(tb, append(clusterArgs(), "--repl-diskless-sync-delay", "0")...))
	}
	for i, s := range c.replicas {
		if err := s.replicate(ctx, c.nodes[0], c.nodes[i]); err != nil {
			tb.Fatalf("redistest: replica %s: %v", s.Addr(), err)
		}
	}
	c.awaitReplicas(ctx, tb)
}

// Failover kills the i-th master by SIGKILL, and returns when its replica has taken over, which takes some seconds, and the killed
// node follows it as its replica. Writes that the master has answered and not sent on are lost. From then on, Nodes names the new
// master in the place of the old one.
func (c *Cluster) Failover(tb testing.TB, i int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*readyTimeout)
	defer cancel()
	c.nodes[i].Kill()
	heir := c.replicas[i].impatient()
	defer heir.Close()
	if err := process.Poll(ctx, nil, func() error { return isMaster(ctx, heir) }); err != nil {
		tb.Fatalf("redistest: replica %s does not take over: %v", c.replicas[i].Addr(), err)
	}
	c.nodes[i], c.replicas[i] = c.replicas[i], c.nodes[i]
	c.replicas[i].Restart(tb)
	c.awaitReplicas(ctx, tb)
}

// awaitReplicas returns when every node sees the whole cluster, and each replica follows its master.
func (c *Cluster) awaitReplicas(ctx context.Context, tb testing.TB) {
	tb.Helper()
	for i, master := range c.nodes {
		for _, s := range []*Server{master, c.replicas[i]} {
			if err := process.Poll(ctx, nil, func() error { return inOrder(ctx, s, 2*len(c.nodes), len(c.nodes)) }); err != nil {
				tb.Fatalf("redistest: node %s does not see the whole cluster: %v", s.Addr(), err)
			}
		}
		if err := process.Poll(ctx, nil, func() error { return c.replicas[i].follows(ctx, master) }); err != nil {
			tb.Fatalf("redistest: replica %s does not follow its master: %v", c.replicas[i].Addr(), err)
		}
	}
}

// replicate makes the node a replica of a master, once it has heard of it from a node that it is introduced to.
func (s *Server) replicate(ctx context.Context, known, master *Server) error {
	id, err := master.nodeID(ctx)
	if err != nil {
		return err
	}
	client := s.impatient()
	defer client.Close()
	if err := client.ClusterMeet(ctx, loopback, strconv.Itoa(known.port)).Err(); err != nil {
		return err
	}
	return process.Poll(ctx, nil, func() error { return client.ClusterReplicate(ctx, id).Err() })
}

// Replicas returns the replica of each of Nodes, none before AddReplicas.
func (c *Cluster) Replicas() []*Server { return c.replicas }

// WaitForReplicas returns when the replicas have all that the masters have written.
func (c *Cluster) WaitForReplicas(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	for i := range c.nodes {
		if err := process.Poll(ctx, nil, func() error { return c.caughtUp(ctx, i) }); err != nil {
			tb.Fatal(err)
		}
	}
}

func (c *Cluster) caughtUp(ctx context.Context, i int) error {
	master, replica := c.nodes[i].impatient(), c.replicas[i].impatient()
	defer master.Close()
	defer replica.Close()
	if err := caughtUp(ctx, master, replica); err != nil {
		return fmt.Errorf("redistest: replica %s: %w", c.replicas[i].Addr(), err)
	}
	return nil
}
