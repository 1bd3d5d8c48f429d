package main

import (
	"strings"
	"testing"
)

func TestTheCommandLooksIntoItsNamespace(t *testing.T) {
	t.Setenv("RAILTOKEN_NAMESPACE", "") // the command sets them, and the test puts them back
	t.Setenv("RAILTOKEN_NAMESPACE_TASKS", "")
	s := newSystem(t)
	s.client.Set(t.Context(), "shop-a:railtoken:lock:{order:9}", "owner", limit)
	s.client.Set(t.Context(), "railtoken:lock:{order:8}", "owner", limit)
	for key, inside := range map[string]bool{"order:8": false, "order:9": true} {
		out, in := must(t, exitOK, "look", key), must(t, exitOK, "look", key, "--namespace", "shop-a", "--namespace-tasks")
		if strings.Contains(out, "No task or program") != inside || strings.Contains(in, "No task or program") == inside {
			t.Errorf("%s is, without a namespace: %s; in it: %s", key, out, in)
		}
		t.Setenv("RAILTOKEN_NAMESPACE", "")
		t.Setenv("RAILTOKEN_NAMESPACE_TASKS", "")
	}
	if out := must(t, exitError, "keys", "--namespace", "{a}"); !strings.Contains(out, "RAILTOKEN_NAMESPACE") {
		t.Errorf("a bad name: %s", out)
	}
}
