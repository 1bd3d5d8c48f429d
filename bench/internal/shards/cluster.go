package shards

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	slots      = 16384
	readyBound = 30 * time.Second
)

// cluster is a Redis Cluster of masters without replicas.
type cluster struct {
	nodes []*server.Server
}

// startCluster runs k masters that share the hash slots evenly, and returns when each of them sees the whole cluster in order.
func startCluster(ctx context.Context, dir string, k int) (c *cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()
	c = &cluster{}
	defer func() {
		if err != nil {
			c.kill()
		}
	}()
	for range k {
		n, err := startNode(ctx, dir)
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, n)
	}
	host, port, err := net.SplitHostPort(c.nodes[0].Addr())
	if err != nil {
		return c, err
	}
	for i, n := range c.nodes {
		if err := n.Probe().Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return c, err
		}
		if err := n.Probe().ClusterAddSlotsRange(ctx, i*slots/k, (i+1)*slots/k-1).Err(); err != nil {
			return c, err
		}
		if i > 0 {
			if err := n.Probe().ClusterMeet(ctx, host, port).Err(); err != nil {
				return c, err
			}
		}
	}
	for _, n := range c.nodes {
		if err := awaitWhole(ctx, n, k); err != nil {
			return c, fmt.Errorf("node %s does not see the whole cluster: %w", n.Addr(), err)
		}
	}
	return c, nil
}

// startNode runs a redis-server in cluster mode, which keeps what it knows of the cluster in a directory of its own. One whose port is too high
// to have another one for the nodes among themselves ends at once, and is started again on another port.
func startNode(ctx context.Context, dir string) (*server.Server, error) {
	own, err := os.MkdirTemp(dir, "node-")
	if err != nil {
		return nil, err
	}
	return server.Start(ctx, own, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
}

func (c *cluster) addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

func (c *cluster) probes() []*redis.Client {
	probes := make([]*redis.Client, len(c.nodes))
	for i, n := range c.nodes {
		probes[i] = n.Probe()
	}
	return probes
}

// kill ends all nodes and returns when they are gone.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.Kill()
	}
}

// awaitWhole returns when the node sees k masters that serve all slots.
func awaitWhole(ctx context.Context, n *server.Server, k int) error {
	for {
		err := seesWhole(ctx, n, k)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

func seesWhole(ctx context.Context, n *server.Server, k int) error {
	info, err := n.Probe().ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", k), fmt.Sprint("cluster_size:", k), fmt.Sprint("cluster_slots_ok:", slots),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %s", want)
		}
	}
	return nil
}
