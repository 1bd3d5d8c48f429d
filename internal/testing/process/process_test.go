package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/process"
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

func TestTwoProcessesReserveDifferentPorts(t *testing.T) {
	t.Parallel()
	const n = 300 // by chance alone, nine of the ports would be the same
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), reserveEnv+"="+strconv.Itoa(n))
	hold, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	addrs, err := process.FreeAddrs(t.Context(), n)
	if err != nil {
		t.Error(err)
	}
	lines := bufio.NewScanner(out)
	for range n {
		if !lines.Scan() {
			t.Fatalf("the other process reserved too few ports: %v", lines.Err())
		}
		addrs = append(addrs, lines.Text())
	}
	slices.Sort(addrs)
	if got := len(slices.Compact(addrs)); got != 2*n {
		t.Errorf("two processes reserved %d different addresses, want %d", got, 2*n)
	}
	if err := errors.Join(hold.Close(), other.Wait()); err != nil {
		t.Error(err)
	}
}

func TestAFreePortIsFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, "true").Run()
			}
		})
	}
	defer starting.Wait()
	defer cancel()
	for range 100 {
		addrs, err := process.FreeAddrs(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}

// reserveEnv makes the test program the other process of TestTwoProcessesReserveDifferentPorts: it reserves as many
// addresses, prints them and keeps them until its input ends.
const reserveEnv = "RESERVE"

func TestMain(m *testing.M) {
	n, err := strconv.Atoi(os.Getenv(reserveEnv))
	if err != nil {
		os.Exit(m.Run())
	}
	addrs, err := process.FreeAddrs(context.Background(), n)
	if err != nil {
		panic(err)
	}
	for _, addr := range addrs {
		fmt.Println(addr)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func start(t *testing.T, program string, args ...string) (*process.Process, error) {
	t.Helper()
	return process.Start(process.Command{Path: program, Args: args, Log: filepath.Join(t.TempDir(), "log")})
}
