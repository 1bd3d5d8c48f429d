package chaos

import "time"

// settles is how long a server that was wrong about time, or has forgotten its locks, counts as bad afterwards: until the leases from
// before are over, and it votes again.
const settles = MaxTTL + time.Second

// most is how many servers kill a majority.
const most = 3

// killed returns the servers that KillMost kills.
func (e Event) killed() (servers []int) {
	for i := range most {
		servers = append(servers, (e.Server+i)%Servers)
	}
	return servers
}

// Health is what the nemesis has done to the servers and the network, and until when each counts as bad. Whatever happens to servers and
// networks, there is at most one holder; but a server whose clock steps may end a lease early. That must not be one that the lease needs:
// so everything else is whole then, and was while such leases were taken.
type Health struct {
	bad   map[int]time.Duration // servers
	clock time.Duration         // until when a clock is bad
	links time.Duration         // until when links are
}

// NewHealth returns that of a system to which nothing has happened.
func NewHealth() *Health { return &Health{bad: map[int]time.Duration{}} }

// Admit reports whether an event may happen now, and notes that it does.
func (h *Health) Admit(e Event, now time.Duration) bool {
	for server, until := range h.bad {
		if until <= now {
			delete(h.bad, server)
		}
	}
	var servers []int
	lasts := e.Lasts + settles
	switch e.Fault {
	case FlushScripts, KillClient, PauseClient:
		return true
	case KillClients:
		return h.clock <= now
	case Partition, LoseReplies, Drip:
		if h.clock > now {
			return false
		}
		h.links = max(h.links, now+lasts)
		return true
	case KillServer, Step:
		servers = []int{e.Server}
	case PauseServer, FullServer:
		servers = []int{e.Server}
	case KillMost:
		servers = e.killed()
	}
	if h.clock > now || e.Fault == Step && (len(h.bad) > 0 || h.links > now) || len(servers) == 1 && len(h.bad) >= most {
		return false
	}
	for _, server := range servers {
		if _, bad := h.bad[server]; bad {
			return false
		}
	}
	for _, server := range servers {
		h.bad[server] = now + lasts
	}
	if e.Fault == Step {
		h.clock = now + lasts
	}
	return true
}
