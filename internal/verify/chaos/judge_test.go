package chaos

import (
	"testing"
	"time"
)

// lease is a lease in a history: its token, its attempt, and its end.
func leaseOf(client int, token, call, begun, ends, ended int64) []Record {
	return []Record{
		{Kind: Begins, Client: client, Key: "k", Token: token, Call: call, Return: begun},
		{Kind: Ends, Client: client, Key: "k", Token: token, Call: ends, Return: ended},
	}
}

func TestTheJudgesTellGoodHistoriesFromBad(t *testing.T) {
	t.Parallel()
	killed := []Record{{Kind: Begins, Client: 1, Key: "k", Token: 1, Call: 0, Return: 1}}
	for name, tt := range map[string]struct {
		history                        []Record
		duplicates, disordered, atOnce int
	}{
		"one after another":                 {append(leaseOf(1, 1, 0, 1, 2, 3), leaseOf(2, 2, 4, 5, 6, 7)...), 0, 0, 0},
		"granted while it ends":             {append(leaseOf(1, 1, 0, 1, 2, 6), leaseOf(2, 2, 3, 4, 8, 9)...), 0, 0, 0},
		"lost":                              {append(leaseOf(1, 1, 0, 1, 2, Never), leaseOf(2, 2, 8, 9, 10, 11)...), 0, 0, 0},
		"its client was killed":             {append(killed, leaseOf(2, 2, 3, 4, 5, 6)...), 0, 0, 0},
		"two at once":                       {append(leaseOf(1, 1, 0, 1, 6, 7), leaseOf(2, 2, 2, 3, 8, 9)...), 0, 0, 1},
		"a token that comes twice":          {append(leaseOf(1, 1, 0, 1, 2, 3), leaseOf(2, 1, 4, 5, 6, 7)...), 1, 0, 1},
		"a smaller token":                   {append(leaseOf(1, 2, 0, 1, 2, 3), leaseOf(2, 1, 4, 5, 6, 7)...), 0, 1, 1},
		"a smaller token, asked for before": {append(leaseOf(1, 2, 2, 3, 4, 5), leaseOf(2, 1, 0, 1, 1, 2)...), 0, 0, 0},
	} {
		history := Closed(tt.history)
		duplicates, disordered := Tokens(history)
		if bad := Linearizable(history); duplicates != tt.duplicates || disordered != tt.disordered || bad != tt.atOnce {
			t.Errorf("%s: %d duplicates, %d disordered, %d keys not linearizable", name, duplicates, disordered, bad)
		}
	}
}

func TestAClockStepsWhileAllElseIsWhole(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	for i, tt := range []struct {
		e    Event
		now  int64 // s
		want bool
	}{
		{Event{Fault: KillServer, Server: 0}, 0, true},
		{Event{Fault: PauseServer, Server: 0}, 0, false},
		{Event{Fault: Step, Server: 1}, 0, false},
		{Event{Fault: FullServer, Server: 1}, 0, true},
		{Event{Fault: PauseServer, Server: 2}, 1, true},
		{Event{Fault: PauseServer, Server: 3}, 1, false},
		{Event{Fault: KillMost, Server: 3}, 3, false},
		{Event{Fault: KillServer, Server: 3}, 4, true},
		{Event{Fault: Step, Server: 4}, 6, false},
		{Event{Fault: Partition}, 6, true},
		{Event{Fault: Step, Server: 4}, 9, false},
		{Event{Fault: Step, Server: 4}, 10, true},
		{Event{Fault: PauseServer, Server: 1}, 13, false},
		{Event{Fault: LoseReplies}, 13, false},
		{Event{Fault: KillClient}, 13, true},
		{Event{Fault: KillMost, Server: 4}, 14, true},
	} {
		if got := h.Admit(tt.e, time.Duration(tt.now)*time.Second); got != tt.want {
			t.Errorf("event %d, %v: %v, want %v", i, tt.e, got, tt.want)
		}
	}
}
