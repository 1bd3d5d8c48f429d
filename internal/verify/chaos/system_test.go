package chaos

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// system is the servers, the network and the clients of a run.
type system struct {
	*testing.T
	subject int
	clocks  *Clocks // nil if they cannot step
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

func (s *system) start() {
	s.Helper()
	for range Servers {
		server := redistest.Start(s)
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

// setClock sets the clock of a server apart from the true time.
func (s *system) setClock(addr string, offset time.Duration) {
	s.Helper()
	if err := s.clocks.Set(addr, offset); err != nil {
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
