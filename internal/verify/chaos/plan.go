package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Fault is a kind of what the nemesis does.
type Fault string

// The faults. Those of a server last for a while, and so do those of the network between one client and one server.
const (
	KillServer   Fault = "a server is killed and restarted empty"
	KillMost     Fault = "three servers are killed and restarted empty"
	PauseServer  Fault = "a server stands still"
	FullServer   Fault = "a server refuses writes (OOM)"
	FlushScripts Fault = "a server forgets its scripts"
	KillClients  Fault = "a server closes all connections"
	KillClient   Fault = "a client is killed"
	PauseClient  Fault = "a client stands still"
	Partition    Fault = "a client does not reach a server"
	LoseReplies  Fault = "replies of a server to a client are lost"
	Drip         Fault = "a server's bytes come one by one"
	Step         Fault = "the clock of a server steps"
)

// faults are all of them, by how often they occur.
var faults = []Fault{
	KillServer, KillMost, PauseServer, PauseServer, FullServer, FlushScripts, KillClients, KillClient, KillClient, PauseClient, PauseClient, PauseClient,
	Partition, Partition, Partition, LoseReplies, LoseReplies, LoseReplies, Drip, Drip, Step,
}

// Servers is how many lock servers there are.
const Servers = 5

// Event is one act of the nemesis.
type Event struct {
	After  time.Duration // the event before
	Fault  Fault
	Server int
	Client int
	Lasts  time.Duration
}

// String says what happens.
func (e Event) String() string {
	return fmt.Sprintf("%s (server %d, client %d, %v)", e.Fault, e.Server, e.Client, e.Lasts)
}

// Plan returns events for a time, on average one each so often.
func Plan(random *rand.Rand, clients int, total, each time.Duration) (all []Event) {
	for at := time.Duration(0); ; {
		e := Event{
			After: time.Duration(random.Int64N(int64(2 * each))), Fault: faults[random.IntN(len(faults))], Server: random.IntN(Servers),
			Client: random.IntN(clients), Lasts: 50*time.Millisecond + time.Duration(random.ExpFloat64()*float64(600*time.Millisecond)),
		}
		e.Lasts = min(e.Lasts, 4*time.Second)
		if e.Fault == KillMost {
			e.Lasts = 20 * time.Millisecond // while leases last
		}
		if e.Fault == PauseClient && random.IntN(2) == 0 {
			e.Lasts += TTL // it loses its leases
		}
		if at += e.After; at > total {
			return all
		}
		all = append(all, e)
	}
}
