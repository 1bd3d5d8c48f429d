package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The rules are those of docs/operations.md.
func TestAReaderLooksAtEverything(t *testing.T) {
	s := newSystem(t).work().crowd("order:1", "second")
	s.reported(1)
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^~asynq.*\+@read.*$`).FindString(string(page))
	if rules == "" {
		t.Fatal("operations.md does not name the rules of a reader")
	}
	s.server.User(t, "reader", append(strings.Fields(rules), ">secret")...)
	t.Setenv("RAILTOKEN_REDIS_USERNAME", "reader")
	t.Setenv("RAILTOKEN_REDIS_PASSWORD", "secret")
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{exitOK, "order:1", []string{"keys"}},
		{exitOK, "order:1", []string{"keys", "--scan"}},
		{exitOK, "default/first", []string{"look", "order:1"}},
		{exitOK, "second", []string{"waiters"}},
		{exitOK, "second", []string{"waiters", "order:1"}},
		{exitOK, "default", []string{"workers"}},
		{exitOK, "master", []string{"nodes"}},
		{exitFound, "it is next", []string{"explain", "second"}},
		{exitOK, "for which one task waits", []string{"explain", "first"}},
		{exitOK, "order:1", []string{"top", "-n", "1"}},
		{exitOK, "held by", []string{"watch", "order:1", "-n", "1"}},
		{exitOK, "", []string{"audit"}},
		{exitUnchecked, "run doctor as the user of the workers", []string{"doctor"}},
		{exitUnchecked, "but 3 checks could not be made", []string{"doctor"}},
	} {
		if out := must(t, c.status, c.args...); !strings.Contains(out, c.says) {
			t.Errorf("%s prints %s, want %q", strings.Join(c.args, " "), out, c.says)
		}
	}
	for _, args := range [][]string{{"wake", "order:1"}, {"drop", "second", "--yes"}, {"cancel", "second", "--yes"}, {"depose", "order:1", "--why", "x", "--yes", "--expect", "y"}} {
		if out := must(t, exitError, args...); !strings.Contains(out, "NOPERM") && !strings.Contains(out, "owner") {
			t.Errorf("%s as a reader: %s", args[0], out)
		}
	}
}
