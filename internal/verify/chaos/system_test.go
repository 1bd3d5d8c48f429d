package chaos

import (
	"bufio"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

// system is the servers, the network and the clients of a run.
type system struct {
	*testing.T
	subject int
	clocks  string // the folder of the clocks; empty if they cannot step
	servers []*redistest.Server
	admin   []*redis.Client
	ledger  *redistest.Server
	links   [][]*Link // of each client to each server
	clients []*exec.Cmd
	started int

	mu      sync.Mutex
	history []Record
	readers sync.WaitGroup
	acts    sync.WaitGroup
	undo    []undo
}

// steppable makes the clocks of the servers that are started from now on steppable, and returns the folder of the clocks. Elsewhere than on
// Linux it returns "", and no clock steps.
func steppable(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		if *runLong {
			t.Fatal("the page tells of clocks that step, which takes Linux")
		}
		return ""
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		cc, err = exec.LookPath("gcc")
	}
	testserver.Needed(t, "a C compiler", err)
	dir := t.TempDir()
	shim := filepath.Join(dir, "step.so")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", shim, filepath.Join("testdata", "step.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("LD_PRELOAD", shim)
	t.Setenv("CHAOS_CLOCKS", dir)
	return dir
}

func (s *system) start() {
	s.Helper()
	for range Servers {
		server := redistest.Start(s)
		if s.clocks != "" {
			_, port, _ := strings.Cut(server.Addr(), ":")
			s.setClock(port, 0)
			server.Restart(s) // it finds its clock
		}
		s.servers = append(s.servers, server)
		s.admin = append(s.admin, server.Client(s, func(o *redis.Options) { o.MaxRetries = -1 }))
	}
	s.ledger = redistest.Start(s)
	for range clients {
		var links []*Link
		for _, server := range s.servers {
			l, err := NewLink(s.Context(), server.Addr())
			if err != nil {
				s.Fatal(err)
			}
			s.Cleanup(l.Close)
			links = append(links, l)
		}
		s.links = append(s.links, links)
	}
	s.clients = make([]*exec.Cmd, clients)
	for c := range clients {
		s.startClient(c)
	}
	s.Cleanup(func() {
		for c := range s.clients {
			_ = s.clients[c].Process.Kill()
			_ = s.clients[c].Wait()
		}
	})
}

func (s *system) setClock(port string, offset time.Duration) {
	s.Helper()
	f, err := os.OpenFile(filepath.Join(s.clocks, port), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0) //nolint:gosec // two's complement is what it reads
	}
	if err != nil {
		s.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.Fatal(err)
	}
}

// startClient starts the process of a client, and keeps what it tells.
func (s *system) startClient(c int) {
	s.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	var addrs []string
	for _, l := range s.links[c] {
		addrs = append(addrs, l.Addr())
	}
	s.started++
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), subjectVariable+"="+strconv.Itoa(s.subject), numberVariable+"="+strconv.Itoa(s.started),
		serversVariable+"="+strings.Join(addrs, ","), ledgerVariable+"="+s.ledger.Addr())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.clients[c] = cmd
	s.readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if r, ok := Parse(lines.Bytes()); ok {
				s.mu.Lock()
				s.history = append(s.history, r)
				s.mu.Unlock()
			}
		}
	})
}
