package traces

import (
	"slices"
	"testing"
	"time"
)

func TestALineOfMonitorIsRead(t *testing.T) {
	t.Parallel()
	l, err := parseLine(`+1700000000.000123 [0 127.0.0.1:5001] "hset" "k \"x\"" "a\\b\n\x00\xff" ""`)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"hset", `k "x"`, "a\\b\n\x00\xff", ""}; !slices.Equal(l.args, want) {
		t.Errorf("%q, want %q", l.args, want)
	}
	if !l.at.Equal(time.Unix(1700000000, 123000)) || l.from != "127.0.0.1:5001" || l.inScript() || l.name() != "HSET" {
		t.Errorf("%+v", l)
	}
}

func TestWhatIsNoLineOfMonitorIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "+OK", `1700000000 [0 lua] "GET"`, `1700000000.1 [0 lua] `, `1700000000.1 [0 lua] "GET" "a`, `1700000000.1 [0 lua] GET`, `x.1 [0 lua] "GET"`,
		`1700000000.1 [0 lua] "GET" "\q"`,
	} {
		if l, err := parseLine(text); err == nil {
			t.Errorf("%q is read as %q", text, l.args)
		}
	}
}

func TestACommandThatAScriptCallsBelongsToIt(t *testing.T) {
	t.Parallel()
	steps := stepsOf([]line{
		{from: "a", args: []string{"EVALSHA", "sha", "2", "k1", "k2", "v"}},
		{from: "lua", args: []string{"GET", "k1"}},
		{from: "lua", args: []string{"DEL", "k2"}},
		{from: "b", args: []string{"PING"}},
	})
	if len(steps) != 2 || len(steps[0].inner) != 2 || len(steps[1].inner) != 0 {
		t.Fatalf("%+v", steps)
	}
	keys, argv := steps[0].call()
	if !slices.Equal(keys, []string{"k1", "k2"}) || !slices.Equal(argv, []string{"v"}) {
		t.Errorf("KEYS %q, ARGV %q", keys, argv)
	}
	if keys, argv := steps[1].call(); keys != nil || argv != nil {
		t.Errorf("KEYS %q, ARGV %q of a command", keys, argv)
	}
}
