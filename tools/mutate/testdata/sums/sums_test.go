package sums

import (
	"testing"
	"time"
)

func TestABoxIsFull(t *testing.T) {
	var b Box
	if n, err := b.Add(7); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.Add(4); n != 7 || err == nil {
		t.Fatal(n, err)
	}
}

func TestWaitingTakesTime(t *testing.T) {
	b := Box{n: 2}
	if got := b.Wait(time.Second); got != 4*time.Second {
		t.Fatal(got)
	}
}
