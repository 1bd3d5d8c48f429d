package chaos

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

var (
	runFor    = flag.Duration("for", 2*time.Second, "how `long` the nemesis is at work on railtoken; a sixth of that on each control")
	runEvery  = flag.Duration("every", 100*time.Millisecond, "mean `time` from one event to the next")
	runSeed   = flag.Uint64("seed", 1, "`seed` of the events")
	runReport = flag.String("report", "", "`file` to write the table to")
	runLong   = flag.Bool("long", false, "a run of this length must show damage in every control")
)

// limit bounds every wait.
const limit = 30 * time.Second

const (
	servers = 5
	clients = 4
	keys    = 12
)

// The variables of a client process.
const (
	subjectVariable = "CHAOS_SUBJECT"
	numberVariable  = "CHAOS_NUMBER"
	serversVariable = "CHAOS_SERVERS"
	ledgerVariable  = "CHAOS_LEDGER"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis tells of each connection that breaks
	if subject := os.Getenv(subjectVariable); subject != "" {
		if err := work(subject); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a client process.
func work(subject string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n, err := strconv.Atoi(subject)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(os.Getenv(numberVariable))
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(ledgerVariable)})
	defer client.Close()
	s := Subjects[n]
	return s.Work(ctx, number, strings.Split(os.Getenv(serversVariable), ","), Ledger{client, s.Fenced}, Keys(keys), os.Stdout)
}

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

// undo ends a fault, in the goroutine of the test.
type undo struct {
	at time.Time
	do func()
}

func TestLocksUnderChaos(t *testing.T) {
	clocks := steppable(t)
	var rows []Row
	for n, subject := range Subjects {
		t.Run(subject.Name, func(t *testing.T) {
			total := *runFor
			if subject.Damage != nil {
				total = max(total/6, 2*time.Second)
			}
			s := &system{T: t, subject: n, clocks: clocks}
			s.start()
			events := s.torment(rand.New(rand.NewPCG(*runSeed, uint64(n))), total)
			row := s.judge(events)
			t.Log(row)
			rows = append(rows, row)
			if row.Leases == 0 || row.Accepted == 0 || events == 0 {
				t.Error("that shows nothing")
			}
			if subject.Damage == nil && row.Damage() > 0 {
				t.Error("that is damage")
			}
			if subject.Damage != nil && *runLong && subject.Damage(row) == 0 {
				t.Error("the control shows no damage, so the run proves nothing")
			}
		})
	}
	if *runReport != "" && !t.Failed() {
		if err := Report(*runReport, rows, *runFor); err != nil {
			t.Fatal(err)
		}
	}
}

// steppable makes the clocks of the servers that are started from now on steppable, and returns the folder of the clocks. It returns "" if
// that cannot be, which only a short run bears.
func steppable(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil && !*runLong {
		t.Log("there is no C compiler here, so no clock steps: make chaos needs one")
		return ""
	}
	if err != nil {
		t.Fatal("there is no C compiler, without which the clocks of servers cannot step: install one (Debian: apt-get install gcc libc6-dev)")
	}
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
	for range servers {
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

// torment has the nemesis at work, and returns how many events there were. Afterwards all clients have ended.
func (s *system) torment(random *rand.Rand, total time.Duration) (events int) {
	s.Helper()
	s.awaitLease("before anything has happened")
	health, began := NewHealth(), time.Now()
	next := began
	for _, e := range Plan(random, servers, clients, total, *runEvery) {
		next = next.Add(e.After)
		s.settle(next)
		if s.clocks == "" && e.Fault == Step {
			continue
		}
		if health.Admit(e, time.Since(began)) {
			s.act(e)
			events++
		}
	}
	s.settle(began.Add(total))
	for len(s.undo) > 0 {
		s.settle(time.Now().Add(10 * time.Millisecond))
	}
	s.acts.Wait()
	s.awaitLease("after the last fault")
	for _, c := range s.clients {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			s.Error(err)
		}
	}
	s.readers.Wait()
	for _, c := range s.clients {
		if err := c.Wait(); err != nil {
			s.Errorf("a client has ended with %v", err)
		}
	}
	return events
}

// awaitLease waits until clients get locks that they ask for from now on.
func (s *system) awaitLease(when string) {
	s.Helper()
	for from, began := now(), time.Now(); time.Since(began) < limit; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		got := slices.ContainsFunc(s.history[max(0, len(s.history)-100):], func(r Record) bool { return r.Kind == Begins && r.Call > from })
		s.mu.Unlock()
		if got {
			return
		}
	}
	s.Errorf("%s, nobody gets a lock within %v", when, limit)
}

// settle waits until a time, and ends the faults whose time comes before.
func (s *system) settle(until time.Time) {
	for {
		at, first := until, -1
		for i, u := range s.undo {
			if !u.at.After(at) {
				at, first = u.at, i
			}
		}
		time.Sleep(time.Until(at))
		if first < 0 {
			return
		}
		do := s.undo[first].do
		s.undo = append(s.undo[:first], s.undo[first+1:]...)
		do()
	}
}

// act does what an event says.
func (s *system) act(e Event) {
	s.Helper()
	server, admin, link := s.servers[e.Server], s.admin[e.Server], s.links[e.Client][e.Server]
	later := func(do func()) { s.undo = append(s.undo, undo{time.Now().Add(e.Lasts), do}) }
	ctx, cancel := context.WithTimeout(s.Context(), time.Second)
	defer cancel()
	switch e.Fault {
	case KillServer:
		server.Kill()
		later(func() { server.Restart(s) })
	case KillMost:
		for i := range most {
			each := s.servers[(e.Server+i)%servers]
			each.Kill()
			later(func() { each.Restart(s) })
		}
	case PauseServer:
		server.Pause()
		later(server.Resume)
	case FullServer:
		_ = admin.ConfigSet(ctx, "maxmemory", "1").Err()
		later(func() {
			ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
			defer cancel()
			if err := admin.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
				s.Error(err)
			}
		})
	case FlushScripts:
		_ = admin.ScriptFlush(ctx).Err()
	case KillClients:
		_ = admin.Do(ctx, "CLIENT", "KILL", "TYPE", "normal").Err()
	case Step:
		_, port, _ := strings.Cut(server.Addr(), ":")
		by := e.Lasts * 5
		if e.Client%2 == 0 {
			by = -by
		}
		s.setClock(port, by)
		later(func() { s.setClock(port, 0) })
	case KillClient:
		_ = s.clients[e.Client].Process.Kill()
		_ = s.clients[e.Client].Wait()
		s.startClient(e.Client)
	case PauseClient:
		process := s.clients[e.Client].Process
		_ = process.Signal(syscall.SIGSTOP)
		later(func() { _ = process.Signal(syscall.SIGCONT) })
	case Partition:
		s.acts.Go(func() { link.Cut(e.Lasts) })
	case LoseReplies:
		s.acts.Go(func() { link.LoseReplies(e.Lasts) })
	case Drip:
		s.acts.Go(func() { link.Drip(e.Lasts) })
	}
}

// judge judges what the clients have told, and what the ledger has.
func (s *system) judge(events int) Row {
	s.Helper()
	subject := Subjects[s.subject]
	all := Closed(s.history)
	row := Row{Subject: subject, Events: events}
	for _, r := range all {
		switch r.Kind {
		case Begins:
			row.Leases++
		case Refused:
			row.Refused++
		case Ends:
			if r.Return == Never {
				row.Lost++
			}
		}
	}
	row.Duplicates, row.Disordered = Tokens(all)
	row.AtOnce = Linearizable(all)
	var err error
	row.Accepted, row.LostUpdates, row.Late, err = Ledger{s.ledger.Client(s), subject.Fenced}.Audit(s.Context(), Keys(keys))
	if err != nil {
		s.Fatal(err)
	}
	return row
}
