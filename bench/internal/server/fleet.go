package server

import "context"

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

// Version returns the server's version.
func (s *Server) Version(ctx context.Context) (string, error) {
	info, err := s.probe.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}
