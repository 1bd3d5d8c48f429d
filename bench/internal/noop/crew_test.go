package noop

import (
	"context"
	"errors"
	"testing"
)

func TestAGateLetsSoManyPass(t *testing.T) {
	t.Parallel()
	g := newGate()
	came := make(chan int, 10)
	for i := range 10 {
		go func() {
			g.come()
			came <- i
		}()
	}
	for range 2 {
		if err := g.pass(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		<-came
	}
	if len(came) > 0 {
		t.Error("more have passed than may")
	}
	g.open()
	for range 4 {
		<-came
	}
}

func TestAGateSaysHowManyDidNotPass(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGate()
	if err := g.pass(ctx, 5); !errors.Is(err, context.Canceled) || err.Error() != "5 of 5 tasks were not done: context canceled" {
		t.Errorf("got %v", err)
	}
}
