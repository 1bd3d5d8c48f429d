package fused_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/fused"
)

func TestTypesAreThoseOfHandlersThatAgree(t *testing.T) {
	t.Parallel()
	var types fused.Types
	types.Learn("a", 30*time.Second)
	types.Learn("a", 30*time.Second)
	if got := types.String(); got != "|a=30000|" {
		t.Errorf("the types are %q", got)
	}
	types.Learn("b", 1500*time.Microsecond) // which a script cannot set
	types.Learn("a", 10*time.Second)        // by another handler
	types.Learn("a", 30*time.Second)
	if got := types.String(); got != "" {
		t.Errorf("the types are %q; want none", got)
	}
}
