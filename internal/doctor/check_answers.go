package doctor

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/internal/rediswire"
)

func unreachable(f Facts) (all []Finding) {
	for _, s := range f.Servers {
		if s.Err == nil {
			continue
		}
		cost := "no task runs until it is back"
		if s.Node {
			cost = "one lock server less: without a majority no task runs"
		} else if !s.Tasks {
			cost = "no task gets its keys until it is back"
		}
		t := s.troubleOf(s.Err)
		all = append(all, Finding{Where: s.Addr, What: "it " + t.what, Cost: cost, Remedy: t.remedy, Command: t.command})
	}
	return all
}

// writes reports servers that answer, but refuse writes. What other checks report is left to them.
func writes(f Facts) (all []Finding) {
	for _, s := range f.answering() {
		switch {
		case s.Refuses == nil,
			s.Info["role"] == "slave" && rediswire.Says(s.Refuses, rediswire.ReadOnly),
			s.unwritten() && rediswire.Says(s.Refuses, rediswire.Misconf):
			continue
		}
		cost := "no task is enqueued, run, parked or acknowledged"
		if s.Node {
			cost = "one lock server less: without a majority no task runs"
		} else if !s.Tasks {
			cost = "no task gets its keys"
		}
		t := s.troubleOf(s.Refuses)
		if errors.Is(s.Refuses, context.DeadlineExceeded) || isTimeout(s.Refuses) {
			t = trouble{
				"answers reads, but no write", "end the pause of its writes (CLIENT PAUSE), or wait until its failover is over",
				"CLIENT UNPAUSE",
			}
		}
		all = append(all, Finding{Where: s.Addr, What: "it " + t.what, Cost: cost, Remedy: t.remedy, Command: t.command})
	}
	return all
}

// trouble is what an error of a server means, and what to do. The text continues one that names the server.
type trouble struct{ what, remedy, command string }

// troubles are the errors that Redis has words for.
var troubles = []struct {
	sign string // in the error
	trouble
}{
	{string(rediswire.Busy) + " ", trouble{
		"runs a script that does not end, and answers nothing else: BUSY",
		"end the script; once it has written, only SHUTDOWN NOSAVE does, which loses what was not saved", "SCRIPT KILL",
	}},
	{string(rediswire.Loading) + " ", trouble{
		"is loading its data from disk: LOADING", "wait: loading_eta_seconds says for how long", "INFO persistence",
	}},
	{"max number of clients", trouble{
		"has as many connections as its maxclients allows, and refuses more",
		"end a process with many connections, then raise maxclients and the limit on open files", "",
	}},
	{string(rediswire.WrongPass) + " ", trouble{
		"refuses the user or the password: WRONGPASS", "correct RAILTOKEN_REDIS_USERNAME and RAILTOKEN_REDIS_PASSWORD (or those of the locks)",
		"",
	}},
	{string(rediswire.NoAuth) + " ", trouble{"wants a password: NOAUTH", "set RAILTOKEN_REDIS_PASSWORD (or that of the locks)", ""}},
	{"DB index is out of range", trouble{
		"has no database of that number", "correct the number of the database (--db, RAILTOKEN_REDIS_DB)", "CONFIG GET databases",
	}},
	{string(rediswire.OOM) + " ", trouble{
		"refuses writes because its memory is full: OOM",
		"raise maxmemory, or delete what is not needed: MEMORY STATS and redis-cli --bigkeys show what takes it", moreMemory,
	}},
	{string(rediswire.NoReplicas) + " ", trouble{
		"refuses writes because too few replicas are connected: NOREPLICAS",
		"start its replicas, or accept fewer (min-replicas-to-write)", "INFO replication",
	}},
	{string(rediswire.Misconf) + " ", trouble{
		"refuses writes because it cannot save its data: MISCONF", "look at its log and at its disk", "INFO persistence",
	}},
	{string(rediswire.ReadOnly) + " ", trouble{
		"is a replica, which refuses writes: READONLY", "give the address of its master, or use Sentinel", "INFO replication",
	}},
	{string(rediswire.ClusterDown) + " ", trouble{
		"is part of a Cluster that is down: CLUSTERDOWN", "start the nodes that are missing", "CLUSTER INFO",
	}},
	{string(rediswire.NoPerm) + " ", trouble{
		"denies its user even PING", "give the user the rules in operations.md, \"ACL rules\"", "ACL WHOAMI",
	}},
}

// moreMemory is the command that mends a full Redis, without the size.
const moreMemory = "CONFIG SET maxmemory "

// enoughMemory returns a quarter more than the server may use or uses, in whole megabytes, if its machine has that much;
// otherwise a word for the size.
func (s *Server) enoughMemory() string {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(s.Info[name], 10, 64) // 0 if it is not known
		return n
	}
	enough := max(number("maxmemory"), number("used_memory"))*5/4>>20 + 1
	if number("maxmemory") == 0 || enough<<20 > number("total_system_memory") {
		return "SIZE"
	}
	return strconv.FormatInt(enough, 10) + "mb"
}

// troubleOf explains an error.
func (s *Server) troubleOf(err error) trouble {
	setting := "RAILTOKEN_REDIS_TLS"
	if !s.Tasks {
		setting = "RAILTOKEN_LOCK_REDIS_TLS"
	}
	for _, t := range troubles {
		if strings.Contains(err.Error(), t.sign) {
			if t.command == moreMemory {
				t.command += s.enoughMemory()
			}
			return t.trouble
		}
	}
	switch {
	case s.SpeaksTLS:
		return trouble{
			"expects encrypted connections (TLS), and got one that is not", "set " + setting + "=true (--tls)", "",
		}
	case s.SpeaksPlain:
		return trouble{
			"does not encrypt connections (TLS) on this port",
			"give the address of its TLS port, or unset " + setting + " in a network that you trust", "",
		}
	case isTimeout(err) && !isDial(err):
		return trouble{
			"accepts connections, but does not answer: " + err.Error(),
			"wait, if it is paused (CLIENT PAUSE) or runs a slow command (SLOWLOG GET); continue its process if that is stopped " +
				"(SIGSTOP)", "",
		}
	default:
		return trouble{"cannot be asked: " + err.Error(), "start it, or correct its address, user and password", ""}
	}
}

func isTimeout(err error) bool {
	failed, ok := errors.AsType[net.Error](err)
	return ok && failed.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func isDial(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// unwritten reports whether the server says that it could not write its data to disk.
func (s *Server) unwritten() bool {
	return s.Info["aof_last_write_status"] == "err" || s.Info["rdb_last_bgsave_status"] == "err"
}
