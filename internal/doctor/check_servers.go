package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/preflight"
)

const (
	// mostSkew is how far clocks may differ: asynq keeps whole seconds.
	mostSkew = time.Second
	// nodeTimeout is the default of locking.RedlockOptions.
	nodeTimeout = 50 * time.Millisecond
)

// answering returns the servers that can be asked.
func (f *Facts) answering() []Server {
	return slices.DeleteFunc(slices.Clone(f.Servers), func(s Server) bool { return s.Err != nil })
}

// refusesHeartbeats reports whether the Redis of the tasks refuses writes. Then asynq's servers cannot say that they live, and
// leases on tasks end although their workers are well.
func (f *Facts) refusesHeartbeats() bool {
	return slices.ContainsFunc(f.Servers, func(s Server) bool { return s.Tasks && s.Refuses != nil })
}

// faults returns the findings for one kind of fault that INFO shows.
func faults(f Facts, kind preflight.Kind, cost func(Server) (string, string)) (all []Finding) {
	for _, s := range f.answering() {
		for _, fault := range preflight.Faults(s.Info, s.Cluster) {
			if fault.Kind == kind {
				cost, command := cost(s)
				all = append(all, Finding{
					Where: s.Addr, What: "it " + fault.What, Cost: cost, Remedy: fault.Remedy, Command: command,
				})
			}
		}
	}
	return all
}

func version(f Facts) []Finding {
	all := faults(f, preflight.Old, func(Server) (string, string) {
		return "the scripts do not work there, and workers refuse to start", ""
	})
	for _, s := range f.answering() {
		if other := preflight.Untested(s.Info); other != "" {
			all = append(all, Finding{
				Advice: true, Where: s.Addr, What: "it is " + other + ", with which railtoken is not tested",
				Cost:   "scripts and failovers that work otherwise than those of Redis can lose a lock without a trace",
				Remedy: "use Redis or Valkey, or try your own tasks there with workers that are killed",
			})
		}
	}
	return all
}

// commands finds servers that cannot do what asynq and railtoken ask of them.
func commands(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		if len(s.Rules.Lacks) > 0 {
			all = append(all, Finding{
				Where: s.Addr, What: "it lacks " + strings.Join(s.Rules.Lacks, ", "),
				Cost: "workers refuse to start: no task can be fetched, locked or parked", Remedy: preflight.LacksRemedy,
			})
		}
	}
	return all
}

func role(f Facts) []Finding {
	return slices.Concat(faults(f, preflight.Replica, func(Server) (string, string) {
		return "it refuses writes, so no key is locked there", ""
	}), faults(f, preflight.Twin, func(Server) (string, string) {
		return "a key can have a holder on each of the two", ""
	}), faults(f, preflight.ClusterNode, func(Server) (string, string) {
		return "calls for keys of other nodes fail", ""
	}))
}

func eviction(f Facts) []Finding {
	if f.Settings.AllowEviction {
		f.Servers = slices.DeleteFunc(f.answering(), func(s Server) bool { return !s.Node })
	}
	return faults(f, preflight.Evicts, func(s Server) (string, string) {
		cost := "evicted tasks and locks vanish without a trace"
		if s.Node {
			cost = "an evicted lock lets a second holder in; the guard does not let the server vote"
		}
		return cost, "CONFIG SET maxmemory-policy noeviction"
	})
}

func persistence(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		aof := s.Info["aof_enabled"] == "1"
		if s.unwritten() {
			all = append(all, Finding{
				Where: s.Addr, What: "it cannot write its data to disk",
				Cost:   "it refuses writes (MISCONF), or loses them when it restarts",
				Remedy: "look at its log and at its disk: INFO persistence says which write failed",
			})
			continue
		}
		switch {
		case s.SavesUnknown || f.Settings.GuardOff && s.Node && s.Fsync == "always":
		case s.Node && f.Settings.GuardOff:
			all = append(all, Finding{
				Advice: true, Where: s.Addr, What: "it votes at once after a restart, but does not keep every write through one",
				Cost:    "locks of its last second are forgotten, which can let a second holder in",
				Remedy:  "turn the guard on (RAILTOKEN_LOCK_GUARD=connect), or write every change to disk",
				Command: "CONFIG SET appendfsync always; CONFIG SET appendonly yes",
			})
		case !s.Node && !aof && !s.Saves:
			what := "locks"
			if s.Tasks {
				what = "tasks, waiting or not, and locks"
			}
			all = append(all, Finding{
				Advice: true, Where: s.Addr, What: "it keeps nothing on disk",
				Cost:    "a restart loses all " + what + "; keys that were held get a second holder",
				Remedy:  "turn the append-only file on, and write it to redis.conf",
				Command: "CONFIG SET appendonly yes",
			})
		}
	}
	return all
}

func rules(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		if len(s.Rules.Missing) > 0 {
			all = append(all, Finding{
				Where:  s.Addr,
				What:   fmt.Sprintf("user %q lacks the rules %s", s.User, strings.Join(s.Rules.Missing, " ")),
				Cost:   "workers refuse to start, or their tasks cannot lock and park",
				Remedy: "add the rules",
				Command: "ACL SETUSER " + s.User + " " + strings.Join(slices.Concat(s.Rules.Missing,
					s.Rules.Hints), " "),
			})
		} else if len(s.Rules.Hints) > 0 {
			all = append(all, Finding{
				Where: s.Addr, What: fmt.Sprintf("user %q may not use channels", s.User),
				Cost:    "tasks that wait in their slots learn of a release up to half a second late",
				Remedy:  "add the rules",
				Command: "ACL SETUSER " + s.User + " " + strings.Join(s.Rules.Hints, " "),
			})
		}
	}
	return all
}

func encryption(f Facts) (all []Finding) {
	for _, s := range f.Servers {
		if s.Encrypted || s.Local {
			continue
		}
		setting := "RAILTOKEN_REDIS_TLS=true"
		if !s.Tasks {
			setting = "RAILTOKEN_LOCK_REDIS_TLS=true"
		}
		all = append(all, Finding{
			Advice: true, Where: s.Addr, What: "connections to it are not encrypted, and it is on another machine",
			Cost:   "the network can read passwords, keys and payloads, and change them",
			Remedy: "give Redis a certificate (tls-port), and set " + setting,
		})
	}
	return all
}

func clocks(f Facts) (all []Finding) {
	servers := f.answering()
	for _, s := range servers {
		if s.Skew.Abs()-s.RoundTrip/2 <= mostSkew {
			continue
		}
		direction := "ahead of"
		if s.Skew < 0 {
			direction = "behind"
		}
		cost := "delayed tasks run early or late, and asynq may take a running task for lost"
		if s.Node {
			cost = "from 13.75 s on the server may not vote; fencing tokens may shrink when counters are lost"
		}
		all = append(all, Finding{
			Where: s.Addr,
			Cost:  cost, Remedy: "synchronize the clocks of both machines, without steps (chrony, no makestep)",
			What: fmt.Sprintf("its clock is %v %s this machine's", s.Skew.Abs().Round(10*time.Millisecond),
				direction),
			Command: "chronyc tracking",
		})
	}
	if len(all) > 0 || len(servers) < 2 {
		return all
	}
	// Each may be near this machine's clock, and yet they may be far from each other.
	first := slices.MinFunc(servers, func(a, b Server) int { return int(a.Skew - b.Skew) })
	last := slices.MaxFunc(servers, func(a, b Server) int { return int(a.Skew - b.Skew) })
	if apart := last.Skew - first.Skew; apart-(first.RoundTrip+last.RoundTrip)/2 > mostSkew {
		all = append(all, Finding{
			Where: last.Addr, What: fmt.Sprintf("its clock is %v ahead of that of %s", apart.Round(10*time.Millisecond),
				first.Addr),
			Cost:   "the servers disagree on when a lock ends",
			Remedy: "synchronize the clocks of both machines", Command: "chronyc tracking",
		})
	}
	return all
}

func latency(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		switch {
		case s.Node && s.RoundTrip > nodeTimeout/2:
			all = append(all, Finding{
				Where: s.Addr,
				What: fmt.Sprintf("it answers after %v at best, and gets %v", s.RoundTrip.Round(time.Millisecond),
					nodeTimeout),
				Cost:   "attempts fail although the server is alive, or wait for slower ones",
				Remedy: "move the lock server nearer, or raise NodeTimeout of RedlockOptions",
			})
		case s.Tasks && s.RoundTrip > f.Settings.TaskCheckInterval/2:
			all = append(all, Finding{
				Where: s.Addr, What: fmt.Sprintf("it answers after %v at best, and idle servers ask it every %v",
					s.RoundTrip.Round(time.Millisecond), f.Settings.TaskCheckInterval),
				Cost:   "each fetch, park, wake and lock takes that long: keys are held longer than their tasks work",
				Remedy: "run workers nearer to Redis, or raise RAILTOKEN_TASK_CHECK_INTERVAL to twice that time",
			})
		case s.Locks && !s.Node && !s.Tasks && s.RoundTrip > nodeTimeout/2:
			all = append(all, Finding{
				Where: s.Addr, What: fmt.Sprintf("it answers after %v at best", s.RoundTrip.Round(time.Millisecond)),
				Cost: "each lock and each release takes that long", Remedy: "move the locks nearer to the workers",
			})
		}
	}
	return all
}

func sameServer(f Facts) (all []Finding) {
	before := map[string]string{}
	for _, s := range f.answering() {
		if !s.Node || s.RunID == "" {
			continue
		}
		if first, twice := before[s.RunID]; twice {
			all = append(all, Finding{
				Advice: true, Where: s.Addr, What: "it is the same server as " + first,
				Cost:   "it votes once, so that the loss of fewer servers than planned stops all locks",
				Remedy: "name each server once in RAILTOKEN_LOCK_NODES",
			})
			continue
		}
		before[s.RunID] = s.Addr
	}
	return all
}

func oneHost(f Facts) (all []Finding) {
	nodes, on := 0, map[string][]string{}
	for _, s := range f.Servers {
		if !s.Node {
			continue
		}
		nodes++
		for _, host := range s.Hosts {
			on[host] = append(on[host], s.Addr)
		}
	}
	for host, addrs := range on {
		if len(addrs) > nodes/2 {
			all = append(all, Finding{
				Advice: true, Where: host, What: fmt.Sprintf("%d of %d lock servers are on this machine: %s", len(addrs), nodes,
					strings.Join(addrs, ", ")),
				Cost:   "when it is down, no majority is left and no task gets its keys",
				Remedy: "spread the lock servers over machines, so that none has a majority",
			})
		}
	}
	return all
}

func quorum(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		if s.Refusal != "" {
			all = append(all, Finding{
				Where: s.Addr, What: "it may not vote: " + s.Refusal,
				Cost: "one lock server less: without a majority no task gets its keys",
				Remedy: "if it has just started, wait until its locks of before have expired, 55 s by " +
					"default; otherwise see the reason",
			})
		}
	}
	return all
}
