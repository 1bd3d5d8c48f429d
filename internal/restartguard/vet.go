package restartguard

import (
	"slices"
	"time"
)

// recheck is the pause before a server is checked again that needs an operator.
const recheck = time.Second

// rounding is the largest error of a server's uptime, the difference of two times cut to whole seconds.
const rounding = time.Second

// firstRelease is before the release of the oldest usable Redis, 6.2. A process that reports an earlier start was
// started with a wrong clock.
var firstRelease = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)

// Limits is what a server must keep to have a vote.
type Limits struct {
	MaxTTL  time.Duration
	MaxSkew time.Duration
}

// Known is what this process has learned of a node. The zero value knows nothing. Its times have monotonic readings, so
// that no wall clock can shorten a quarantine.
type Known struct {
	// RunID is the process that served the node last.
	RunID string
	// Before is the process that served the node before RunID, if both were alive at the same time by RunID's own age;
	// empty otherwise, for example after a restart.
	Before string
	// Seen is when it was first seen, and LastSeen when it was last seen.
	Seen, LastSeen time.Time
	// Born is the latest possible start of the process, never after Seen. For a process that has taken the place of
	// another it is Seen, whatever its age by its own clock.
	Born time.Time
	// ReplID is the history of writes in which the node was last seen as a master, and ReplSince when it was first seen
	// so.
	ReplID    string
	ReplSince time.Time
}

// Vet decides whether a server may vote, by what was known of its node and the run ids of the other nodes. It returns
// what is known now, and nil or the refusal.
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
			return k, refuse(Replaced, until, "run_id %.8s answered after this one, %.8s, had started, by its own age",
				k.Before, f.RunID)
		}
		return k, refuse(Young, until, "it is known to run for %v of %v",
			now.Sub(k.Born).Round(time.Millisecond), l.MaxTTL)
	}
	if until := k.ReplSince.Add(l.MaxTTL); f.ReplID2 != "" && now.Before(until) {
		return k, refuse(Promoted, until, "master_replid2 is %.8s, and its master_replid %.8s is known for %v of %v",
			f.ReplID2, f.ReplID, now.Sub(k.ReplSince).Round(time.Millisecond), l.MaxTTL)
	}
	// The server looked at its clock at an unknown instant of the round trip, half of it away from the middle at most.
	if f.skew().Abs()+f.RoundTrip/2 > l.MaxSkew {
		return k, refuse(Skewed, now.Add(recheck), "it is %v ahead, give or take %v, and %v is allowed",
			f.skew().Round(time.Millisecond), (f.RoundTrip / 2).Round(time.Microsecond), l.MaxSkew)
	}
	if f.MaxMemory > 0 && f.Policy != "noeviction" {
		return k, refuse(Evicting, now.Add(recheck), "maxmemory is %d and maxmemory-policy %.20q",
			f.MaxMemory, f.Policy)
	}
	return k, nil
}

// vetDuplicate refuses a server to which another node of the Redlock leads as well.
func vetDuplicate(f Facts, others []string, now time.Time) *RefusedError {
	if f.RunID == "" || !slices.Contains(others, f.RunID) {
		return nil
	}
	return refuse(Duplicate, now.Add(recheck), "run_id %.8s votes already", f.RunID)
}

// meet returns what is known after the facts. A process in the place of another one is as old as this process has known
// it: its own clock may have been set since its start, and the process before may have been seen last long ago. When
// its own age says that both were alive at the same time it is another server, else a restart; that changes the refusal
// alone.
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
