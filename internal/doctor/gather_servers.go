package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/preflight"
	"github.com/railtoken/railtoken/internal/restartguard"
)

const (
	// asks is how often a server is asked for the time: the shortest round trip counts.
	asks = 5
	// maxTTL is the default of locking.RedlockOptions.
	maxTTL = 55 * time.Second
)

// target is a server to ask, and what for.
type target struct {
	client *redis.Client
	server Server
	needs  preflight.Needs
}

// gatherServers asks all servers, concurrently.
func gatherServers(ctx context.Context, src Sources, missed *gaps) []Server {
	targets := targetsOf(ctx, src)
	servers := make([]Server, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, preflight.Timeout)
			defer cancel()
			servers[i] = t.server
			servers[i].gather(ctx, t, src, missed)
		})
	}
	wg.Wait()
	return servers
}

// targetsOf returns all servers.
func targetsOf(ctx context.Context, src Sources) (all []target) {
	queues, err := src.Tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil || len(queues) == 0 {
		queues = []string{"default"}
	}
	apart := src.Locks != nil || len(src.Nodes) > 0
	all = each(ctx, src.Tasks, Server{Tasks: true, Locks: !apart}, preflight.Needs{Queues: queues, Locks: !apart})
	if src.Locks != nil {
		all = append(all, each(ctx, src.Locks, Server{Locks: true}, preflight.Needs{Locks: true})...)
	}
	for _, node := range src.Nodes {
		all = append(all, target{
			node,
			Server{Addr: node.Options().Addr, Locks: true, Node: true},
			preflight.Needs{Locks: true, Info: !src.Settings.GuardOff},
		})
	}
	return all
}

// each returns the masters behind a client. A Cluster that cannot be reached counts as one server.
func each(ctx context.Context, client redis.UniversalClient, s Server, needs preflight.Needs) (all []target) {
	switch c := client.(type) {
	case *redis.Client:
		s.Addr = c.Options().Addr
		return []target{{c, s, needs}}
	case *redis.ClusterClient:
		var mu sync.Mutex
		s.Cluster = true
		err := c.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			one := s
			one.Addr = master.Options().Addr
			mu.Lock()
			defer mu.Unlock()
			all = append(all, target{master, one, needs})
			return nil
		})
		if err == nil && len(all) > 0 {
			return all
		}
		s.Addr = strings.Join(c.Options().Addrs, ",")
		s.Err = fmt.Errorf("the masters of the Cluster are not known: %w", err)
	default:
		s.Addr, s.Err = "the Redis of the tasks", fmt.Errorf("a client of type %T cannot be examined", client)
	}
	return []target{{nil, s, needs}}
}

// gather asks one server.
func (s *Server) gather(ctx context.Context, t target, src Sources, missed *gaps) {
	if t.client == nil {
		s.Local, s.Encrypted = true, true // nothing is known about it
		return
	}
	s.Encrypted = t.client.Options().TLSConfig != nil
	if s.User = t.client.Options().Username; s.User == "" {
		s.User = "default"
	}
	s.gatherHosts(ctx, t.client, src)
	s.gatherAnswer(ctx, t.client)
	if s.Err != nil {
		return
	}
	missed.add("clock", s.Addr, s.gatherTimes(ctx, t.client))
	info, err := t.client.Info(ctx).Result()
	for _, check := range []string{"version", "role", "eviction", "persistence"} {
		missed.add(check, s.Addr, err)
	}
	s.Info = preflight.ParseInfo(info)
	s.RunID = s.Info["run_id"]
	s.gatherSaves(ctx, t.client, missed)
	s.gatherRules(ctx, t, missed)
	if s.Node && !src.Settings.GuardOff {
		s.gatherVote(ctx, t.client)
	}
}

// gatherHosts finds out on which machine the server is.
func (s *Server) gatherHosts(ctx context.Context, client *redis.Client, src Sources) {
	if client.Options().Network == "unix" || strings.HasPrefix(s.Addr, "/") {
		s.Local, s.Hosts = true, []string{"localhost"}
		return
	}
	host, _, err := net.SplitHostPort(s.Addr)
	if err != nil { // that of a client of Sentinels is not one: Redis tells where this connection has led
		text, _ := client.ClientInfo(ctx).Result()
		if text == nil {
			s.Local = true
			return
		}
		host, _, _ = net.SplitHostPort(text.LAddr)
	}
	s.Hosts = []string{strings.ToLower(host)}
	if ip := net.ParseIP(host); ip != nil {
		s.Local = ip.IsLoopback()
		return
	}
	if addrs, err := src.Resolve(ctx, host); err == nil && len(addrs) > 0 {
		s.Hosts = addrs
		s.Local = true
		for _, addr := range addrs {
			s.Local = s.Local && net.ParseIP(addr).IsLoopback()
		}
	}
}

// gatherTimes measures round trips and the clock.
func (s *Server) gatherTimes(ctx context.Context, client *redis.Client) error {
	for range asks {
		sent := time.Now()
		clock, err := client.Time(ctx).Result()
		took := time.Since(sent)
		if err != nil {
			return err
		}
		if s.RoundTrip == 0 || took < s.RoundTrip {
			s.RoundTrip, s.Skew = took, clock.Sub(sent.Add(took/2))
		}
	}
	return nil
}

// gatherRules finds out whether the server accepts writes, and what its user may do there. It tries commands on a key of its
// own. A user who may not write at all is somebody who looks: what the workers' user may do is not known then.
func (s *Server) gatherRules(ctx context.Context, t target, missed *gaps) {
	written, err := preflight.Write(ctx, t.client)
	switch {
	case written == preflight.Refused:
		s.Refuses = err
		return
	case written == preflight.Denied && preflight.ReadsOnly(ctx, t.client):
		err = fmt.Errorf("user %q may only read: run doctor as the user of the workers", s.User)
		for _, check := range []string{"acl", "commands", "writes"} {
			missed.add(check, s.Addr, err)
		}
		return
	}
	s.Rules, err = preflight.MissingRules(ctx, t.client, t.needs)
	missed.add("acl", s.Addr, err)
	missed.add("commands", s.Addr, err)
}

// gatherSaves finds out what the server writes to disk. Users often may not ask for it.
func (s *Server) gatherSaves(ctx context.Context, client *redis.Client, missed *gaps) {
	if len(s.Info) == 0 {
		s.SavesUnknown = true
		return
	}
	config, err := client.ConfigGet(ctx, "save").Result()
	if err == nil && s.Info["aof_enabled"] == "1" {
		var fsync map[string]string
		if fsync, err = client.ConfigGet(ctx, "appendfsync").Result(); err == nil {
			s.Fsync = fsync["appendfsync"]
		}
	}
	s.Saves = config["save"] != "" || s.Info["rdb_saves"] != "" && s.Info["rdb_saves"] != "0"
	if err != nil && s.Info["aof_enabled"] != "1" && !s.Saves {
		s.SavesUnknown = true
		missed.add("persistence", s.Addr, fmt.Errorf("whether it keeps data on disk is not known: %w", err))
	}
}

// gatherVote asks the guard whether the server may vote. What other checks report is left to them.
func (s *Server) gatherVote(ctx context.Context, client *redis.Client) {
	refusal := restartguard.Look(ctx, client, maxTTL)
	if refusal == nil {
		return
	}
	switch refusal.Reason {
	case restartguard.NotMaster, restartguard.Skewed, restartguard.Evicting, restartguard.Unreachable:
	default:
		s.Refusal = string(refusal.Reason) + ": " + refusal.Cause
	}
}
