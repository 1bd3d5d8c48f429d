package server

import (
	"context"
	"strconv"
	"time"
)

// StartAll starts n servers.
func StartAll(ctx context.Context, dir string, n int) (servers []*Server, err error) {
	for range n {
		s, err := Start(ctx, dir)
		if err != nil {
			KillAll(servers)
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// KillAll ends servers at once and returns when they are gone.
func KillAll(servers []*Server) {
	for _, s := range servers {
		s.Kill()
	}
}

// Addrs returns the servers' addresses.
func Addrs(servers []*Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.addr
	}
	return all
}

// Age is for how long the server has run by its own account, in whole seconds.
func (s *Server) Age(ctx context.Context) (time.Duration, error) {
	info, err := s.probe.InfoMap(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.Atoi(info["Server"]["uptime_in_seconds"])
	return time.Duration(seconds) * time.Second, err
}

// AwaitAge returns when the servers have run for longer than age, at once when that is 0. It says how long it waits.
func AwaitAge(ctx context.Context, servers []*Server, age time.Duration, say func(format string, args ...any)) error {
	if age == 0 {
		return nil
	}
	age += 2 * time.Second // a server counts whole seconds
	for _, s := range servers {
		for {
			is, err := s.Age(ctx)
			if err != nil {
				return err
			}
			if is >= age {
				break
			}
			say("the servers must be %v old: %v more", age, age-is)
			select {
			case <-time.After(age - is):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// Version returns the server's version.
func (s *Server) Version(ctx context.Context) (string, error) {
	info, err := s.probe.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}
