package main

import (
	"strings"
	"testing"
	"time"
)

func TestIdealIsTheWorkOfTheBusiestKey(t *testing.T) {
	t.Parallel()
	got := idealOf(map[string][]hold{
		"many short": {{Began: at(0), Ended: at(1)}, {Began: at(2), Ended: at(3)}, {Began: at(3), Ended: at(4)}},
		"two long":   {{Began: at(0), Ended: at(30)}, {Began: at(50), Ended: at(60)}},
	})
	if want := (ideal{Key: "two long", Tasks: 2, Work: 40 * time.Millisecond}); got != want {
		t.Errorf("the ideal is %+v, want %+v", got, want)
	}
	if got := idealOf(nil); got != (ideal{}) || got.ratio(time.Second) != 0 {
		t.Errorf("the ideal of nothing is %+v", got)
	}
}

func TestIdealExplainsASlowRun(t *testing.T) {
	t.Parallel()
	const why = "RAILTOKEN_REDIS_ADDR"
	i := ideal{Key: "run/seller:1", Tasks: 20, Work: time.Second}
	near, far := i.describe("seller:1", 1200*time.Millisecond, true), i.describe("seller:1", 1600*time.Millisecond, true)
	if !strings.Contains(near, "seller:1, has 20 tasks") || !strings.Contains(near, "1.20 s, 1.20 times") || strings.Contains(near, why) {
		t.Error(near)
	}
	if !strings.Contains(far, "1.60 times") || !strings.Contains(far, why) {
		t.Error(far)
	}
	if remote := i.describe("seller:1", 2*time.Second, false); strings.Contains(remote, why) || !strings.Contains(remote, "distance to Redis") {
		t.Error(remote)
	}
}
