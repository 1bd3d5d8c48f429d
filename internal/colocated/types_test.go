package colocated_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
)

func TestTypesAreThoseOfHandlersThatAgree(t *testing.T) {
	t.Parallel()
	var types colocated.Types
	types.Learn("a", 30*time.Second, colocated.Wait{})
	types.Learn("a", 30*time.Second, colocated.Wait{})
	if got := types.String(); got != "|a=30000|" {
		t.Errorf("the types are %q", got)
	}
	types.Learn("b", 1500*time.Microsecond, colocated.Wait{}) // which a script cannot set
	types.Learn("a", 10*time.Second, colocated.Wait{})        // by another handler
	types.Learn("a", 30*time.Second, colocated.Wait{})
	if got := types.String(); got != "" {
		t.Errorf("the types are %q; want none", got)
	}
}

func TestTypesWhoseHandlersWaitDifferentlyHaveNoWait(t *testing.T) {
	t.Parallel()
	var types colocated.Types
	one, two := colocated.Wait{Behind: 5, After: time.Second, Most: time.Minute}, colocated.Wait{Behind: 1, After: time.Second, Most: time.Minute}
	types.Learn("a", 30*time.Second, one)
	types.Learn("a", 30*time.Second, one)
	if got := types.String(); got != "|a=30000,1000,60000,5|" {
		t.Errorf("the types are %q", got)
	}
	types.Learn("a", 30*time.Second, two)
	types.Learn("a", 30*time.Second, one)
	if got := types.String(); got != "|a=30000|" {
		t.Errorf("then the types are %q", got)
	}
	if got, _ := types.TTL("a"); got != 30*time.Second {
		t.Errorf("the TTL is %v", got)
	}
}

func TestATypeHasOneOrder(t *testing.T) {
	t.Parallel()
	var types colocated.Types
	types.Learn("a", 30*time.Second, colocated.Wait{Order: "fifo"})
	types.Learn("b", 30*time.Second, colocated.Wait{After: time.Second, Most: time.Minute, Order: "strict"})
	types.Learn("b", 30*time.Second, colocated.Wait{After: time.Minute, Most: time.Minute, Order: "strict"})
	if a, b := types.String(), "|a=30000/fifo|b=30000/strict|"; a != b && a != "|b=30000/strict|a=30000/fifo|" {
		t.Errorf("the types are %q, want %q", a, b)
	}
	types.Learn("b", 30*time.Second, colocated.Wait{})
	if got := types.String(); got != "|a=30000/fifo|" {
		t.Errorf("the types are %q", got)
	}
	if _, order := types.TTL("a"); order != "fifo" {
		t.Errorf("the order is %q", order)
	}
}

func TestAForgottenTypeIsLearnedAgain(t *testing.T) {
	t.Parallel()
	var types colocated.Types
	learn := func(n int) {
		for range n {
			types.Learn("a", 30*time.Second, colocated.Wait{})
		}
	}
	learn(1)
	for _, records := range []int{16, 32, 64} {
		if !types.Forget("a") || types.String() != "" {
			t.Fatalf("the types are %q; want none", types.String())
		}
		learn(records - 1)
		types.Doubt("a") // a wrong record in between
		learn(records - 1)
		if types.Forget("a") || types.String() != "" {
			t.Errorf("after %d correct records in a row the types are %q", records-1, types.String())
		}
		learn(1)
		if types.String() != "|a=30000|" {
			t.Errorf("after %d correct records in a row the types are %q", records, types.String())
		}
	}
}
