package cost

import (
	"context"
	"errors"
	"testing"
)

// start returns a crew, and its tasks' work.
func startWork(t *testing.T) (*crew, func()) {
	t.Helper()
	var work func()
	c, err := newCrew(func(w func()) (func() error, error) {
		work = w
		return func() error { return nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, work
}

func TestACrewLetsSoManyPass(t *testing.T) {
	t.Parallel()
	c, work := startWork(t)
	came := make(chan int, 10)
	for i := range 10 {
		go func() {
			work()
			came <- i
		}()
	}
	for range 2 {
		if err := c.Pass(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		<-came
	}
	if len(came) > 0 {
		t.Error("more have passed than may")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 4 {
		<-came
	}
}

func TestACrewSaysHowManyDidNotPass(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, _ := startWork(t)
	if err := c.Pass(ctx, 5); !errors.Is(err, context.Canceled) || err.Error() != "5 of 5 tasks were not done: context canceled" {
		t.Errorf("got %v", err)
	}
}
