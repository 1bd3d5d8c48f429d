package simulate

import (
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
)

const (
	millisecond int64 = 1000
	second      int64 = 1000 * millisecond
)

// Guard decides whether a server may vote, from its facts and what is known about it. It returns what is known now, and
// when a refused server is checked again, or the zero time if the server may vote.
type Guard func(
	f restartguard.Facts, l restartguard.Limits, k restartguard.Known, others []string, now time.Time,
) (restartguard.Known, time.Time)

// Production is the Guard that production uses.
func Production(
	f restartguard.Facts, l restartguard.Limits, k restartguard.Known, others []string, now time.Time,
) (restartguard.Known, time.Time) {
	k, refused := restartguard.Vet(f, l, k, others, now)
	if refused == nil {
		return k, time.Time{}
	}
	return k, refused.Until
}

// Scenario describes a simulated world. Probabilities are from 0 to 1; a mean time of 0 means never.
type Scenario struct {
	Name    string
	Variant Variant
	Guard   Guard // Production when nil

	Nodes, Clients, Slots int // Slots of one client: what it does at the same time
	Keys, Hot             int // half of the acquisitions go to the hot keys
	KeysPerLock           int
	Block                 int64         // the largest
	MinTTL, TopTTL        time.Duration // that are used
	MaxTTL                time.Duration // that may be used: what the guard waits for
	FenceTTL              time.Duration
	Timeout               time.Duration // for the answer of a node
	Hold                  time.Duration // mean
	LongHolds             float64       // this share holds for up to 2.5 TTL
	Think                 time.Duration // mean, between attempts

	Tail          float64 // messages that are late
	Longest       time.Duration
	Lost          float64 // messages that are lost
	Duplicated    float64 // requests that arrive twice
	LateDuplicate float64 // of these, the second one up to LateBy later
	LateBy        time.Duration

	PauseEvery  time.Duration // of one client
	LongestStop time.Duration
	Suspended   float64 // of the pauses: the monotonic clock stands still
	Stalled     float64 // attempts that pause between the proposal and the requests
	Rewound     float64 // of the suspensions: the wall clock is set back by as much

	ClientCrashEvery time.Duration // of one client
	NodeCrashEvery   time.Duration // of one node
	FullLoss         float64       // of the crashes: all data
	PartialLoss      float64       // of the crashes: up to the last second, as with appendfsync everysec
	FailoverEvery    time.Duration // of one node; up to 200 ms are lost
	ClockSet         float64       // of the starts of nodes: the wall clock is set right after, so the node looks old

	NodePartEvery time.Duration // of one node: for up to NodeParted it is cut off, and then another node's clock is set forward
	NodeParted    time.Duration
	RetakeAtTurn  bool // missing locks are taken by renewals alone

	Skew         time.Duration // of a client's wall clock, in both directions
	JumpEvery    time.Duration // of one client's wall clock, within Skew
	NodeSkew     time.Duration
	NodeJump     time.Duration // the wall clocks of one node is set this often, within NodeSkew
	ClientDrift  int64         // millionths, in both directions
	NodeDrift    int64
	ProposalSpan time.Duration // an acquisition that is won later than this after its proposal is given up; 0: MaxTTL/2
}

// calm is the base of all scenarios.
func calm() Scenario {
	return Scenario{
		Name: "calm", Nodes: 5, Clients: 6, Slots: 2, Keys: 6, Hot: 1, KeysPerLock: 1, Block: 16,
		MinTTL: 500 * time.Millisecond, TopTTL: 2 * time.Second, MaxTTL: 2 * time.Second,
		FenceTTL: 12 * time.Second, Timeout: 50 * time.Millisecond,
		Hold: time.Millisecond, LongHolds: 0.0005, Think: time.Millisecond,
		Tail: 0.002, Longest: 20 * time.Millisecond, NodeDrift: 10_000,
	}
}

// Scenarios returns the ten scenarios in which no promise may be broken.
func Scenarios() []Scenario {
	all := []struct {
		name string
		set  func(*Scenario)
	}{
		{"calm", func(*Scenario) {}},
		{"lossy", lossy},
		{"duplicates", duplicates},
		{"pauses", pauses},
		{"full loss", func(s *Scenario) { crashes(s); s.FullLoss = 1 }},
		{"partial loss", func(s *Scenario) { crashes(s); s.PartialLoss, s.FailoverEvery = 0.8, 40*time.Second }},
		{"clock jumps", jumps},
		{"skew", skew},
		{"many keys", manyKeys},
		{"everything", func(s *Scenario) {
			lossy(s)
			duplicates(s)
			pauses(s)
			crashes(s)
			manyKeys(s)
			jumps(s)
			s.Lost, s.FullLoss, s.PartialLoss, s.FailoverEvery = 0.01, 0.4, 0.4, 90*time.Second
			s.NodeCrashEvery, s.PauseEvery = 30*time.Second, 3*time.Second
			s.ClientDrift, s.NodeDrift, s.ClockSet = 4_500, 5_000, 0.5
		}},
	}
	scenarios := make([]Scenario, 0, len(all))
	for _, a := range all {
		s := calm()
		s.Name = a.name
		a.set(&s)
		scenarios = append(scenarios, s)
	}
	return scenarios
}

func lossy(s *Scenario) {
	s.Lost, s.Tail, s.Longest, s.Keys, s.Skew = 0.02, 0.03, 3*time.Second, 20, 400*time.Millisecond
}

func duplicates(s *Scenario) {
	s.Duplicated, s.LateDuplicate, s.Tail, s.Longest = 0.1, 0.3, 0.02, 3*time.Second
	s.Skew, s.LateBy = 400*time.Millisecond, 6*time.Second
}

func pauses(s *Scenario) {
	s.PauseEvery, s.LongestStop, s.ClientCrashEvery = 300*time.Millisecond, 3*time.Second, 10*time.Second
	s.Suspended, s.Stalled = 0.5, 0.01
	s.LongHolds, s.Skew = 0.01, 400*time.Millisecond
}

func crashes(s *Scenario) {
	s.NodeCrashEvery, s.ClientCrashEvery = 20*time.Second, 20*time.Second
	s.LongHolds, s.Tail, s.Longest = 0.003, 0.01, 3*time.Second
	s.Skew, s.Stalled, s.LongestStop = 440*time.Millisecond, 0.005, 3*time.Second
}

func jumps(s *Scenario) {
	s.Skew, s.JumpEvery = 440*time.Millisecond, 200*time.Millisecond
	s.NodeSkew, s.NodeJump = 60*time.Millisecond, 3*time.Second
	s.PauseEvery, s.LongestStop, s.Suspended, s.Rewound, s.LongHolds = time.Second, 3*time.Second, 0.5, 0.2, 0.005
}

func skew(s *Scenario) {
	s.Skew, s.NodeSkew = 460*time.Millisecond, 10*time.Millisecond
	s.ClientDrift, s.NodeDrift, s.LongHolds = 4_500, 5_000, 0.002
	s.Tail = 0.02
}

func manyKeys(s *Scenario) {
	s.Keys, s.Hot, s.KeysPerLock, s.FenceTTL, s.LongHolds = 2000, 4, 3, 7*time.Second, 0.002
}
