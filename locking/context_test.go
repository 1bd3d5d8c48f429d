package locking

import (
	"context"
	"testing"
)

func TestAContextGivesTheLeaseThatItCarries(t *testing.T) {
	t.Parallel()
	if lease, ok := FromContext(t.Context()); ok || lease != nil {
		t.Errorf("lease %v of a context that carries none", lease)
	}
	outer, inner := &Lease{}, &Lease{}
	ctx := NewContext(t.Context(), outer)
	if lease, ok := FromContext(context.WithoutCancel(ctx)); !ok || lease != outer {
		t.Errorf("lease %p, %v; want %p", lease, ok, outer)
	}
	if lease, ok := FromContext(NewContext(ctx, inner)); !ok || lease != inner {
		t.Errorf("lease %p, %v; want the innermost: %p", lease, ok, inner)
	}
}
