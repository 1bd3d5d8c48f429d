package server

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
)

const clusterSlots = 16384

// StartCluster runs a Redis Cluster of n masters, which share the slots evenly, and returns when each of them sees the whole.
func StartCluster(ctx context.Context, dir string, n int) (masters []*Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	defer func() {
		if err != nil {
			KillAll(masters)
		}
	}()
	for i := range n {
		own, err := os.MkdirTemp(dir, "node-") // a node remembers what it was in its directory
		if err != nil {
			return masters, err
		}
		s, err := Start(ctx, own, "--cluster-enabled", "yes")
		if err != nil {
			return masters, err
		}
		masters = append(masters, s)
		if err := s.join(ctx, masters[0], i, n); err != nil {
			return masters, fmt.Errorf("node %s: %w", s.addr, err)
		}
	}
	for _, s := range masters {
		if err := process.Poll(ctx, s.Exited(), func() error { return s.seesAll(ctx, n) }); err != nil {
			return masters, fmt.Errorf("node %s: %w", s.addr, err)
		}
	}
	return masters, nil
}

// join gives the i-th of n masters its slots and an epoch of its own, and introduces it to the first.
func (s *Server) join(ctx context.Context, first *Server, i, n int) error {
	if err := s.probe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return err
	}
	if err := s.probe.ClusterAddSlotsRange(ctx, i*clusterSlots/n, (i+1)*clusterSlots/n-1).Err(); err != nil || s == first {
		return err
	}
	_, port, _ := strings.Cut(first.addr, ":")
	return s.probe.ClusterMeet(ctx, process.Loopback, port).Err()
}

// seesAll succeeds when the master sees n masters that serve all slots.
func (s *Server) seesAll(ctx context.Context, n int) error {
	info, err := s.probe.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{"cluster_state:ok", "cluster_known_nodes:" + strconv.Itoa(n), "cluster_size:" + strconv.Itoa(n)} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("it does not say %s", want)
		}
	}
	return nil
}

// ClusterClient returns a client of a Redis Cluster with so many connections to each master.
func ClusterClient(masters []*Server, connections int) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: Addrs(masters), PoolSize: connections, ContextTimeoutEnabled: true})
}
