package main

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/middleware"
)

func TestTheCommandKnowsTheHeadOfASequence(t *testing.T) {
	s := newSystem(t).work().behindFailed("order:1")
	for _, args := range [][]string{{"wake", "order:1"}, {"wake", "order:1", "--most", "2"}} {
		out := must(t, exitError, args...)
		for _, want := range []string{
			"it is the turn of default/broken: it has failed 1 of 26 times, the last time with: " + errBroken.Error(),
			"2 tasks wait behind it in order", "railtoken drop default/broken",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s prints %s, without %q", strings.Join(args, " "), out, want)
			}
		}
	}
	if state := s.state("next") + s.state("last"); state != "retryretry" {
		t.Errorf("the tasks behind the head are %s", state)
	}
	if out := must(t, exitOK, "look", "order:1"); !strings.Contains(out, "task default/broken has failed, and runs again in") {
		t.Errorf("look prints %s", out)
	}
	if out := must(t, exitOK, "drop", "broken", "--yes"); !strings.Contains(out, "default/broken is deleted") {
		t.Errorf("drop prints %s", out)
	}
	s.await(middleware.Acquired, "next")
	if out := must(t, exitError, "wake", "order:1"); !strings.Contains(out, "the turn of default/next: its handler runs") {
		t.Errorf("with a head that runs, wake prints %s", out)
	}
}
