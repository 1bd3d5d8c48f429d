package guard

import (
	"slices"
	"time"
)

// recheck is when a server is looked at again that somebody has to repair first.
const recheck = time.Second

// rounding is how much too long the uptime of a server can be: it is the difference of two times cut to whole seconds.
const rounding = time.Second

// firstRelease is before the oldest Redis that can be used, 6.2, was released. A process that says it started earlier was started
// with a wrong clock.
var firstRelease = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)

// Limits is what a server must keep to have a vote.
type Limits struct {
	MaxTTL  time.Duration
	MaxSkew time.Duration
}

// Known is what this process has learned of a node before. The zero value knows nothing. Its times have monotonic readings, so
// that no wall clock can shorten a quarantine.
type Known struct {
	// RunID is the process that served the node last.
	RunID string
	// Before is the process that served the node before RunID and was alive together with it, as RunID's own claim of its age has it;
	// empty when there was none, as after a restart.
	Before string
	// Seen is when it was first seen, and LastSeen when it was last seen.
	Seen, LastSeen time.Time
	// Born is the latest time at which the process can have started, as far as is known. It is never after Seen. For a process that
	// has taken the place of another it is Seen, whatever its age by its own clock.
	Born time.Time
	// ReplID is the history of writes in which the node was last seen as a master, and ReplSince when it was first seen so.
	ReplID    string
	ReplSince time.Time
}

// Vet decides whether a server may vote, given what was known of its node and the run ids of the other nodes. It returns what is
// known now, and nil or the refusal.
func Vet(f Facts, l Limits, k Known, others []string, now time.Time) (Known, *RefusedError) {
	if f.RunID == "" {
		return k, refuse(NoRunID, now.Add(recheck), "INFO server does not tell one")
	}
	if r := vetDuplicate(f, others, now); r != nil {
		return k, r
	}
	k = k.meet(f, now)
	if f.Role != "master" {
		return k, refuse(NotMaster, now.Add(recheck), "its role is %.20q", f.Role)
	}
	if f.ReplID != k.ReplID {
		k.ReplID, k.ReplSince = f.ReplID, now
	}
	if until := k.Born.Add(l.MaxTTL); now.Before(until) {
		if k.Before != "" {
			return k, refuse(Replaced, until, "run_id %.8s answered after this one, %.8s, had started, by what it says of its age", k.Before, f.RunID)
		}
		return k, refuse(Young, until, "it is known to run for %v of %v", now.Sub(k.Born).Round(time.Millisecond), l.MaxTTL)
	}
	if until := k.ReplSince.Add(l.MaxTTL); f.ReplID2 != "" && now.Before(until) {
		return k, refuse(Promoted, until, "master_replid2 is %.8s, and its master_replid %.8s is known for %v of %v", f.ReplID2, f.ReplID,
			now.Sub(k.ReplSince).Round(time.Millisecond), l.MaxTTL)
	}
	// The server looked at its clock at an unknown instant of the round trip, half of it away from the middle at most.
	if f.skew().Abs()+f.RoundTrip/2 > l.MaxSkew {
		return k, refuse(Skewed, now.Add(recheck), "it is %v ahead, give or take %v, and %v is allowed", f.skew().Round(time.Millisecond),
			(f.RoundTrip / 2).Round(time.Microsecond), l.MaxSkew)
	}
	if f.MaxMemory > 0 && f.Policy != "noeviction" {
		return k, refuse(Evicting, now.Add(recheck), "maxmemory is %d and maxmemory-policy %.20q", f.MaxMemory, f.Policy)
	}
	return k, nil
}

// vetDuplicate refuses a server that another node of the Redlock leads to as well.
func vetDuplicate(f Facts, others []string, now time.Time) *RefusedError {
	if f.RunID == "" || !slices.Contains(others, f.RunID) {
		return nil
	}
	return refuse(Duplicate, now.Add(recheck), "run_id %.8s votes already", f.RunID)
}

// meet returns what is known after the facts. A process in the place of another one is as old as this process has known it: its own
// clock may have been set since it started, and the process before may have been seen last long ago. One that says it was alive
// together with the one before is another server, else it is taken for a restart; that makes a difference to the refusal alone.
func (k Known) meet(f Facts, now time.Time) Known {
	age := f.Uptime - rounding
	if f.Clock.Add(-f.Uptime).Before(firstRelease) {
		age = 0
	}
	born := now.Add(-max(age, 0))
	switch {
	case k.RunID == f.RunID:
		// A later claim counts when it makes the process younger, down to what this process has seen itself.
		if born.After(k.Born) {
			k.Born = born
		}
		if k.Born.After(k.Seen) {
			k.Born = k.Seen
		}
	case k.RunID != "" && born.Before(k.LastSeen):
		k.Before, k.RunID, k.Seen, k.Born = k.RunID, f.RunID, now, now
	case k.RunID != "":
		k.Before, k.RunID, k.Seen, k.Born = "", f.RunID, now, now
	default:
		k.RunID, k.Seen, k.Born = f.RunID, now, born
	}
	k.LastSeen = now
	return k
}
