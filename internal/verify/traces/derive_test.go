package traces

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// taped makes lines of text: who, and the words of a command.
func taped(text string) (lines []line) {
	for i, row := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(row)
		for k := range words {
			words[k] = strings.Trim(strings.ReplaceAll(words[k], "~", " "), "'")
		}
		lines = append(lines, line{at: time.Unix(1700000000, int64(i)*1000), from: words[0], args: words[1:]})
	}
	return lines
}

// before is two pending tasks of one key, and the begin of the recording; fetched is a fetch that takes one with its lock, and the other without.
const (
	before = `
p LPUSH asynq:{q}:pending t0
p HSET asynq:{q}:t:t0 state pending
p LPUSH asynq:{q}:pending t1
p HSET asynq:{q}:t:t1 state pending
r ECHO traces~begins`
	fetched = `
w EVALSHA fetch 5 asynq:{q}:pending asynq:{q}:paused asynq:{q}:active asynq:{q}:lease asynq:{q}:recalled:F F 2 100
lua EXISTS asynq:{q}:recalled:F
lua RPOPLPUSH asynq:{q}:pending asynq:{q}:active
lua SET railtoken:lock:{k} F001/kind/t0 NX PX 30000
lua SET railtoken:lock:{k}:fence 7 PX 60000 GET
lua HSET asynq:{q}:t:t0 state active pending_since F.1
lua RPOPLPUSH asynq:{q}:pending asynq:{q}:active
lua SET railtoken:lock:{k} F002/kind/t1 NX PX 30000
lua HSET asynq:{q}:t:t1 state active pending_since F.2
lua ZADD asynq:{q}:lease 100 t0 100 t1`
)

func derived(t *testing.T, text string) []string {
	t.Helper()
	events, err := derive(names{"q", []string{"t0", "t1"}, []string{"k"}}, taped(text), func(addr string) int {
		if addr == "w" {
			return 0
		}
		return nobody
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range events {
		got = append(got, events[i].String())
	}
	return got
}

func TestAFetchIsOneEventWithWhatItHasTaken(t *testing.T) {
	t.Parallel()
	want := []string{
		"w0 begins t0: t0 pending in run 0, t1 pending in run 0, k0 free raised 0",
		"w0 fetches: t0 active in run 1, t1 active in run 1, k0 of t0 run 1 raised 1",
	}
	if got := derived(t, before+fetched); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTwoAcknowledgementsInOneCallAreTwoPartsOfIt(t *testing.T) {
	t.Parallel()
	got := derived(t, before+fetched+`
w EVALSHA ack 9 asynq:{q}:active asynq:{q}:t:t0 railtoken:lock:{k} asynq:{q}:active asynq:{q}:t:t1 p q r asynq:{q}:recalled:G `+
		`2 G 1 100 '' '' '' '' '' '' 5 '' 1 x 0 2 1 t0 2 F.1 F001/kind/t0 1 '' 1 0 1 7 2 1 t1 2 F.2 '' 1 '' 0 0 0
lua MGET railtoken:lock:{k}
lua DEL railtoken:lock:{k}
lua LREM asynq:{q}:active 0 t0
lua LREM asynq:{q}:active 0 t1
lua ZREM asynq:{q}:lease t0 t1
lua DEL asynq:{q}:t:t0 asynq:{q}:t:t1`)
	want := []string{"w0 ends t0, and in the same script", "w0 ends t1: t0 done in run 1, t1 done in run 1, k0 free raised 1"}
	if !slices.Equal(got[2:], want) {
		t.Errorf("%q, want %q", got[2:], want)
	}
}

func TestALockThatExpiresIsAnEvent(t *testing.T) {
	t.Parallel()
	lines := taped(before + fetched + "\nr PING")
	lines[len(lines)-1].at = lines[0].at.Add(31 * time.Second)
	events, err := derive(names{"q", []string{"t0", "t1"}, []string{"k"}}, lines, func(string) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := events[len(events)-1].String(), "expires k0: t0 active in run 1, t1 active in run 1, k0 free raised 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAStepThatIsNotKnownIsAnErrorOnlyIfItChangesSomething(t *testing.T) {
	t.Parallel()
	derived(t, before+"\nw EVALSHA other 1 x\nlua SET x 1")
	_, err := derive(names{"q", []string{"t0", "t1"}, []string{"k"}}, taped(before+"\nw EVALSHA other 1 asynq:{q}:pending\nlua DEL asynq:{q}:pending"),
		func(string) int { return 0 })
	if err == nil {
		t.Error("it is taken for nothing")
	}
}

func TestAReplicaRefusesACommandThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	if _, err := derive(names{"q", nil, nil}, taped("w FLUSHALL"), func(string) int { return 0 }); err == nil {
		t.Error("it is passed over")
	}
}
