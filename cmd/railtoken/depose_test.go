package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/middleware"
)

func TestADeposedHolderMakesRoomForTheNext(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second")
	var state keyJSON
	out, _, _ := call(t, "look", "order:1", "--json")
	if err := json.Unmarshal([]byte(out), &state); err != nil || state.Holder == nil {
		t.Fatalf("look: %s, %v", out, err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"order:1"}, "why"},
		{[]string{"order:1", "--why", "it hangs"}, "there is no terminal"},
		{[]string{"order:1", "--why", "it hangs", "--yes"}, "--expect"},
		{[]string{"order:1", "--why", "it hangs", "--yes", "--expect", "another"}, "look again"},
		{[]string{"order:2", "--why", "it hangs"}, "the key is free"},
	} {
		if out := must(t, exitError, append([]string{"depose"}, c.args...)...); !strings.Contains(out, c.says) {
			t.Errorf("depose %q: %s; want %q", c.args, out, c.says)
		}
	}
	if s.state("first") != "active" {
		t.Fatalf("the holder is %s although nothing was confirmed", s.state("first"))
	}
	must(t, exitOK, "depose", "order:1", "--why", "it hangs", "--by", "ann", "--yes", "--expect", state.Holder.Owner)
	for {
		if e := redistest.Receive(t, s.events, limit); e.Kind == middleware.Acquired && e.Task.ID == "second" {
			break
		}
	}
	if out := must(t, exitOK, "audit"); !strings.Contains(out, "it hangs") || !strings.Contains(out, "ann") || !strings.Contains(out, "done") {
		t.Errorf("audit: %s", out)
	}
	if out := must(t, exitOK, "audit", "--hash", "--json"); strings.Contains(out, "order:1") || !json.Valid([]byte(out)) {
		t.Errorf("audit --hash --json: %s", out)
	}
	if out := must(t, exitError, "audit", "-n", "0"); !strings.Contains(out, "at least 1") {
		t.Errorf("audit -n 0: %s", out)
	}
}
