package tasks

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Fault is a kind of what the nemesis does.
type Fault string

// The faults. Servers are those of the tasks, and the network is that between one process and them.
const (
	Switch       Fault = "SENTINEL FAILOVER makes the replica the master, and the old master accepts writes for a while"
	KillMaster   Fault = "the master is killed, the sentinels promote the replica, and the killed one comes back empty"
	StallMaster  Fault = "the master stands still, the sentinels promote the replica, and the old master goes on for a while"
	PauseMaster  Fault = "the master stands still, and is not replaced"
	FullMaster   Fault = "the master refuses writes (OOM)"
	FlushScripts Fault = "the master forgets its scripts"
	KillClients  Fault = "the master closes all connections"
	KillWorker   Fault = "a worker is killed, and another one is started"
	PauseWorker  Fault = "a worker stands still"
	Partition    Fault = "a worker or the producer does not reach the servers"
	LoseReplies  Fault = "replies to a worker or the producer are lost"
	Drip         Fault = "the bytes for a worker or the producer come one by one"
	Step         Fault = "the clocks of the servers step"
)

// Faults are all of them, each with how often it occurs.
var Faults = []struct {
	Fault Fault
	Share int
}{
	{Switch, 2},
	{KillMaster, 2},
	{StallMaster, 2},
	{PauseMaster, 2},
	{FullMaster, 2},
	{FlushScripts, 2},
	{KillClients, 2},
	{KillWorker, 3},
	{PauseWorker, 4},
	{Partition, 4},
	{LoseReplies, 4},
	{Drip, 2},
	{Step, 2},
}

// Event is one act of the nemesis.
type Event struct {
	After   time.Duration // the event before
	Fault   Fault
	Process int // a worker, or the producer behind them
	Lasts   time.Duration
	Must    bool // it waits until it is admissible
}

// String says what happens.
func (e Event) String() string {
	return fmt.Sprintf("%s (process %d, %v)", e.Fault, e.Process, e.Lasts)
}

// replacing is how many of Faults are failovers: those at the beginning.
const replacing = 3

// Plan returns events for a time, on average one each so often. The first ones are each fault once: the failovers, because they must
// wait for one another, and the others in a random order.
func Plan(random *rand.Rand, processes int, total, each time.Duration) (all []Event) {
	var shares []Fault
	for _, f := range Faults {
		for range f.Share {
			shares = append(shares, f.Fault)
		}
	}
	order := random.Perm(replacing)
	for _, i := range random.Perm(len(Faults) - replacing) {
		order = append(order, replacing+i)
	}
	for at := time.Duration(0); ; {
		e := Event{
			After: time.Duration(random.Int64N(int64(2 * each))), Fault: shares[random.IntN(len(shares))], Process: random.IntN(processes),
			Lasts: min(50*time.Millisecond+time.Duration(random.ExpFloat64()*float64(600*time.Millisecond)), 4*time.Second),
		}
		if len(all) < len(order) {
			e.Fault, e.Must = Faults[order[len(all)]].Fault, true
		}
		if e.Fault == PauseWorker && (e.Must || random.IntN(2) == 0) {
			e.Lasts += TTL // it loses its leases
		}
		if e.Fault == PauseMaster {
			e.Lasts = min(e.Lasts, gone/3)
		}
		if at += e.After; at > total && !e.Must {
			return all
		}
		all = append(all, e)
	}
}
