package redistest_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/redistest"
)

func TestAServerThatLosesItsPortToAnotherIsNotMistakenForIt(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	second.Stop()
	if err := second.RunOnPortOf(first); !errors.Is(err, redistest.ErrPortTaken) {
		t.Errorf("running on a taken port: %v", err)
	}
	if err := first.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first server: %v", err)
	}
}

func TestRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	squatter, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { squatter.Close() })
	s.Restart(t)
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
