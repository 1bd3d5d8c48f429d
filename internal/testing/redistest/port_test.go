package redistest_test

import (
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAServerThatLosesItsPortToAnotherIsNotMistakenForIt(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	second.Stop()
	if err := second.RunOnPortOf(first); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("running on a taken port: %v", err)
	}
	if err := first.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first server: %v", err)
	}
}
