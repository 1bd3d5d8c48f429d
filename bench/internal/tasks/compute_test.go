package tasks

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestAComputationIsBrokenOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- compute(ctx, time.Hour) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := compute(t.Context(), 2*stepTime); err != nil {
		t.Error(err)
	}
}

func TestTasksThatComputeAreDoneOnAllProcessors(t *testing.T) {
	t.Parallel()
	s := Repeat("K100", 100, 2, briefWork, seed)
	c := s.computing()
	if c.Name != "K100-computes" || !c.Computes || c.Tasks[3].Work != computedWork || s.Tasks[3].Work != briefWork {
		t.Errorf("%s: %+v", c.Name, c.Tasks[3])
	}
	if want := 200 * computedWork / time.Duration(min(Slots, runtime.NumCPU())); c.Ideal() != want {
		t.Errorf("the ideal is %v, want %v", c.Ideal(), want)
	}
	if b := s.busy(); b.Name != "K100-busy" || !b.Busy || b.Ideal() != s.Ideal() {
		t.Errorf("%s, the ideal is %v", b.Name, b.Ideal())
	}
}
