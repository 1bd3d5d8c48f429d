package restartguard

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// recheck is the pause before the next check of a server that an operator must mend.
const recheck = time.Second

// rounding is the largest error of a server's uptime, which is the difference of two times in whole seconds.
const rounding = time.Second

// Limits are the limits that a server must keep in order to vote.
type Limits struct {
	MaxTTL  time.Duration
	MaxSkew time.Duration
}

// Known is what this process knows about a node; the zero value knows nothing. Its times have monotonic readings, so
// that no wall clock can shorten a quarantine.
type Known struct {
	// RunID is the process that served the node last.
	RunID string
	// Before is the process that served the node before RunID, if the age of RunID says that both existed at the same
	// time. It is empty otherwise, for example after a restart.
	Before string
	// Seen is when RunID was first seen, and LastSeen when it was last seen.
	Seen, LastSeen time.Time
	// Born is the latest possible start of the process: Seen, or as much earlier as another client has watched it. For a
	// process that has replaced another one it is Seen.
	Born time.Time
	// ReplID is the node's history of writes when it was last seen as a master, and ReplSince is when that history was
	// first seen.
	ReplID    string
	ReplSince time.Time
}

// Vet decides whether a server may vote, from its facts, what is known about its node, and the run ids of the other
// nodes. It returns what is known now, and the refusal, or nil if the server may vote.
func Vet(f Facts, l Limits, k Known, others []string, now time.Time) (Known, *RefusedError) {
	if f.RunID == "" {
		return k, refuse(NoRunID, now.Add(recheck), "INFO server does not tell one")
	}
	if r := vetDuplicate(f, others, now); r != nil {
		return k, r
	}
	first := k.RunID == ""
	k = k.meet(f, now)
	if f.Role != "master" {
		return k, refuse(NotMaster, now.Add(recheck), "its role is %.20q", f.Role)
	}
	if f.ReplID != k.ReplID {
		k.ReplID, k.ReplSince = f.ReplID, now
		if first {
			k.ReplSince = k.Born
		}
	}
	if until := k.Born.Add(l.MaxTTL); now.Before(until) {
		if k.Before != "" {
			return k, refuse(Replaced, until, "run_id %.8s answered after this one, %.8s, had started, by its own age",
				k.Before, f.RunID)
		}
		return k, refuse(Young, until, "it is known to have run for %v of %v",
			now.Sub(k.Born).Round(time.Millisecond), l.MaxTTL)
	}
	if until := k.ReplSince.Add(l.MaxTTL); f.ReplID2 != "" && now.Before(until) {
		return k, refuse(Promoted, until, "master_replid2 is %.8s, and its master_replid %.8s is known for %v of %v",
			f.ReplID2, f.ReplID, now.Sub(k.ReplSince).Round(time.Millisecond), l.MaxTTL)
	}
	// The server read its clock at an unknown instant of the round trip, at most half of it away from the middle.
	if f.skew().Abs()+f.RoundTrip/2 > l.MaxSkew {
		return k, refuse(Skewed, now.Add(recheck), "it is %v ahead, give or take %v, and %v is allowed",
			f.skew().Round(time.Millisecond), (f.RoundTrip / 2).Round(time.Microsecond), l.MaxSkew)
	}
	if rediswire.MayEvict(f.MaxMemory, f.Policy) {
		return k, refuse(Evicting, now.Add(recheck), "maxmemory is %d and maxmemory-policy %.20q",
			f.MaxMemory, f.Policy)
	}
	return k, nil
}

// vetDuplicate refuses a server that is also another node of the Redlock.
func vetDuplicate(f Facts, others []string, now time.Time) *RefusedError {
	if f.RunID == "" || !slices.Contains(others, f.RunID) {
		return nil
	}
	return refuse(Duplicate, now.Add(recheck), "run_id %.8s votes already", f.RunID)
}

// meet updates what is known from the facts. No age that the server reports counts, because its clock may have been set
// since its start. A process that has replaced another one counts as born when it was first seen, even if another client
// has watched it: two servers may take turns behind one address. If its reported age says that both existed at the same
// time, it is another server; otherwise the server was restarted. Only the text of the refusal depends on that.
func (k Known) meet(f Facts, now time.Time) Known {
	switch {
	case k.RunID == f.RunID:
	case k.RunID == "":
		k.RunID, k.Seen, k.Born = f.RunID, now, now.Add(-f.Watched)
	case now.Add(rounding - f.Uptime).Before(k.LastSeen):
		k.Before, k.RunID, k.Seen, k.Born = k.RunID, f.RunID, now, now
	default:
		k.Before, k.RunID, k.Seen, k.Born = "", f.RunID, now, now
	}
	k.LastSeen = now
	return k
}
