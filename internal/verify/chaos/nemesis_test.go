package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// undo ends a fault, in the goroutine of the test.
type undo struct {
	at time.Time
	do func()
}

// torment has the nemesis at work, and returns how many events there were. Afterwards all clients have ended.
func (s *system) torment(random *rand.Rand, total time.Duration) (events int) {
	s.Helper()
	s.awaitLease("before anything has happened")
	health, began := NewHealth(), time.Now()
	next := began
	for _, e := range Plan(random, clients, total, *runEvery) {
		next = next.Add(e.After)
		s.settle(next)
		if s.clocks == nil && e.Fault == Step {
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
		for _, n := range e.killed() {
			each := s.servers[n]
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
		by := e.Lasts * 5
		if e.Client%2 == 0 {
			by = -by
		}
		s.setClock(server.Addr(), by)
		later(func() { s.setClock(server.Addr(), 0) })
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
