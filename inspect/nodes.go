package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/locking"
)

// defaultMaxTTL is that of [locking.RedlockOptions].
const defaultMaxTTL = 55 * time.Second

// Node is a lock server.
type Node struct {
	Addr string
	// Err says why the server could not be queried; nil if it was. If it is set, the fields below are zero.
	Err error
	// Version is the version of Redis, and Role is "master" or "slave".
	Version, Role string
	RunID         string
	Uptime        time.Duration
	// Latency is the time of one round trip. Skew is how far the server's clock is ahead of this machine's, give or take
	// half of Latency.
	Latency, Skew time.Duration
	// Refused says why the server may not vote in a Redlock, and what to do about it; empty if it may. VotesIn is how long
	// that lasts for a worker that starts now, if the server only has to wait. Workers that have known it for longer let it
	// vote earlier.
	Refused string
	VotesIn time.Duration
}

// Nodes returns the state of each lock server, all asked at the same time: for a Redlock in the order of
// [Options].Nodes, for a Redis Cluster all masters by address. The Redis user must be allowed to run INFO.
func (i *Inspector) Nodes(ctx context.Context) ([]Node, error) {
	if cluster, ok := i.servers[0].client.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		var nodes []Node
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			n, _ := ask(ctx, master.Options().Addr, master)
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, n)
			return nil
		})
		slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Addr, b.Addr) })
		return nodes, err
	}
	nodes, facts := make([]Node, len(i.servers)), make([]restartguard.Facts, len(i.servers))
	var all sync.WaitGroup
	for n, s := range i.servers {
		all.Go(func() { nodes[n], facts[n] = ask(ctx, s.addr, s.client) })
	}
	all.Wait()
	if len(i.opts.Nodes) > 0 && i.opts.Redlock.Guard != locking.GuardOff {
		vet(nodes, facts, cmp.Or(i.opts.Redlock.MaxTTL, defaultMaxTTL), time.Now())
	}
	return nodes, nil
}

// vet says which servers of a Redlock may not vote, as a process finds that has not seen them before.
func vet(nodes []Node, facts []restartguard.Facts, maxTTL time.Duration, now time.Time) {
	var seen []string
	limits := restartguard.Limits{MaxTTL: maxTTL, MaxSkew: maxTTL / 4}
	for n := range nodes {
		if nodes[n].Err != nil {
			continue
		}
		_, refusal := restartguard.Vet(facts[n], limits, restartguard.Known{}, seen, now)
		if refusal != nil {
			nodes[n].Refused = string(refusal.Reason) + ": " + refusal.Cause + "; " + refusal.Remedy
			if refusal.Reason == restartguard.Young || refusal.Reason == restartguard.Promoted {
				nodes[n].VotesIn = refusal.Until.Sub(now)
			}
		}
		seen = append(seen, facts[n].RunID)
	}
}

// ask asks a lock server about itself.
func ask(ctx context.Context, addr string, client redis.UniversalClient) (Node, restartguard.Facts) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n := Node{Addr: addr}
	if n.Err = client.Ping(ctx).Err(); n.Err != nil { // so that the round trip needs no new connection
		return n, restartguard.Facts{}
	}
	sent := time.Now()
	clock, err := client.Time(ctx).Result()
	received := time.Now()
	var server, replication, memory *redis.StringCmd
	mark := client.Get(ctx, restartguard.MarkKey).Val() // none is no failure
	_, failed := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		// One section each: Redis 6.2 takes no more.
		server, replication, memory = p.Info(ctx, "server"), p.Info(ctx, "replication"), p.Info(ctx, "memory")
		return nil
	})
	if n.Err = errors.Join(err, failed); n.Err != nil {
		return n, restartguard.Facts{}
	}
	facts, err := restartguard.ParseFacts(server.Val(), replication.Val(), memory.Val())
	if err != nil {
		n.Err = err
		return n, facts
	}
	facts = facts.Timed(clock, sent, received).Marked(mark)
	n.Role, n.RunID, n.Uptime = facts.Role, facts.RunID, facts.Uptime
	n.Latency, n.Skew = facts.RoundTrip, facts.Clock.Sub(facts.Asked)
	for line := range strings.Lines(server.Val()) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			n.Version = version
		}
	}
	return n, facts
}
