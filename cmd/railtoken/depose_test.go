package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/testing/redistest"
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
		{[]string{"order:1"}, "--why REASON, for the audit and the holder's error; --yes, because there is no terminal to ask at; --expect OWNER"},
		{
			[]string{"order:1", "--why", "it hangs"},
			"depose needs --yes, because there is no terminal to ask at; --expect OWNER, which is " + state.Holder.Owner + " now (default/first)",
		},
		{[]string{"order:1", "--why", " ", "--yes", "--expect", state.Holder.Owner}, "--why REASON"},
		{[]string{"order:1", "--why", "it hangs", "--yes"}, "--expect"},
		{[]string{"order:1", "--why", "it hangs", "--yes", "--expect", "another"}, "look again"},
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

func TestLookAtAnUnusedKeyNamesSimilarOnes(t *testing.T) {
	newSystem(t).work().crowd("order:1042", "second")
	for _, tc := range []struct{ key, says string }{
		{"ordr:1042", "  railtoken look order:1042\n"}, {"seller:7", "No similar key"},
	} {
		out := must(t, exitOK, "look", tc.key)
		if !strings.Contains(out, "No task or program holds key "+tc.key) || !strings.Contains(out, tc.says) {
			t.Errorf("look %s: %s", tc.key, out)
		}
	}
	if out := must(t, exitOK, "look", "1042", "--json"); !strings.Contains(out, `"similar_keys"`) || !strings.Contains(out, "order:1042") {
		t.Error(out)
	}
	if out := must(t, exitOK, "look", "1042", "--hash"); strings.Contains(out, "order:") || !strings.Contains(out, "look --find ") {
		t.Error(out)
	}
}

func TestAHolderInAnotherStoreIsShownAndKept(t *testing.T) {
	s := newSystem(t)
	text, err := json.Marshal(holdings.Worker{Host: "web", PID: 7, Backend: "pglock", Keys: 1, Held: []holdings.Held{{
		Key: []byte("order:1"), Queue: "default", ID: "first", Type: "audit", Since: time.Now().Add(-time.Minute).UnixMilli(),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s.client.Set(t.Context(), holdings.Key("w"), text, 0)
	s.client.ZAdd(t.Context(), holdings.Workers, redis.Z{Score: float64(time.Now().UnixMilli()), Member: "w"})
	s.client.HSet(t.Context(), "asynq:{default}:t:first", "state", "active")
	out := must(t, exitOK, "look", "order:1")
	if !strings.Contains(out, "holder   task default/first (audit), by web/7") || !strings.Contains(out, "another store (pglock)") ||
		strings.Contains(out, "owner") {
		t.Errorf("look: %s", out)
	}
	if out := must(t, exitOK, "look", "order:1", "--json"); !strings.Contains(out, `"backend": "pglock"`) {
		t.Errorf("look --json: %s", out)
	}
	out = must(t, exitError, "depose", "order:1", "--why", "it hangs", "--yes", "--expect", "0123456789abcdef")
	if !strings.Contains(out, "another store (pglock)") || !strings.Contains(out, "stop the process of its worker, web/7") {
		t.Errorf("depose: %s", out)
	}
}
