package process_test

import (
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/internal/process"
)

func TestAPausedProcessCanBeKilled(t *testing.T) {
	t.Parallel()
	p, err := start(t, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Exited():
		t.Error("a paused process has exited")
	default:
	}
	p.Kill()
	<-p.Exited()
	if _, err := start(t, "no-such-program"); err == nil {
		t.Error("a program that does not exist was started")
	}
}

func TestFreeAddressesAreDistinctAndFree(t *testing.T) {
	t.Parallel()
	addrs, err := process.FreeAddrs(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(addrs)
	if len(slices.Compact(addrs)) != 20 {
		t.Fatalf("%d different addresses, want 20", len(addrs))
	}
	for _, addr := range addrs {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

func start(t *testing.T, program string, args ...string) (*process.Process, error) {
	t.Helper()
	return process.Start(process.Command{Path: program, Args: args, Log: filepath.Join(t.TempDir(), "log")})
}
