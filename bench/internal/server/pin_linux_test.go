package server_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/railtoken/railtoken/bench/internal/server"
)

func TestAPinnedServerRunsOnItsCoreAlone(t *testing.T) {
	t.Parallel()
	cores, err := server.Cores()
	if err != nil || len(cores) == 0 {
		t.Fatalf("%v, %v", cores, err)
	}
	s := start(t)
	core := cores[len(cores)-1]
	if err := server.Pin(s.PID(), core); err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.PID()))
	if err != nil || len(threads) < 2 { // redis-server has some in the background
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(id, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != 1 || !set.IsSet(core) {
			t.Errorf("thread %d may run on %d cores", id, set.Count())
		}
	}
	if err := server.Pin(s.PID(), 1<<10-1); err == nil {
		t.Error("a core that is not there is accepted")
	}
}
