package tasks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/verify/chaos"
)

// clock is how a time is logged.
const clock = "15:04:05.000"

// torment is what the nemesis has done and is doing.
type torment struct {
	began     time.Time
	events    int
	health    Health
	undo      []undo
	broken    sync.WaitGroup // networks and servers, and the outbox that waits for them
	replaced  chan error     // the end of a failover
	failovers []Window
	log       []string // what has happened
	steps     []Window
}

// undo ends a fault, in the goroutine of the test.
type undo struct {
	at time.Time
	do func()
}

// torture has the nemesis at work.
func (s *system) torture(total time.Duration) {
	s.Helper()
	s.began = time.Now()
	s.replaced = make(chan error, 1)
	next := s.began
	var put []Event // off, until they are admissible
	for _, e := range Plan(s.random, Workers+1, total, *runEvery) {
		next = next.Add(e.After)
		s.settle(next)
		put = s.perform(append(put, e))
	}
	for waits := time.Now(); len(put) > 0 && time.Since(waits) < limit; put = s.perform(put) {
		s.settle(time.Now().Add(10 * time.Millisecond))
	}
	for _, e := range put {
		s.Errorf("%v is not admissible", e)
	}
	s.settle(s.began.Add(total))
	for waits := time.Now(); (len(s.undo) > 0 || s.health.failing) && time.Since(waits) < limit; {
		s.settle(time.Now().Add(10 * time.Millisecond))
	}
	s.broken.Wait()
}

// perform does what is admissible of some events, and returns those that must happen and are not.
func (s *system) perform(events []Event) (put []Event) {
	s.Helper()
	for _, e := range events {
		switch {
		case s.clocks == nil && e.Fault == Step:
		case s.health.Admit(e, time.Since(s.began)):
			s.act(e)
			s.events++
		case e.Must:
			put = append(put, e)
		}
	}
	return put
}

// settle waits until a time, and ends the faults whose time comes before.
func (s *system) settle(until time.Time) {
	s.Helper()
	for {
		at, first := until, -1
		for i, u := range s.undo {
			if !u.at.After(at) {
				at, first = u.at, i
			}
		}
		select {
		case <-time.After(time.Until(at)):
		case err := <-s.replaced:
			s.failedOver(err)
			continue
		}
		if first < 0 {
			return
		}
		do := s.undo[first].do
		s.undo = append(s.undo[:first], s.undo[first+1:]...)
		do()
	}
}

// failedOver ends a failover. A while later the outbox looks for what it has lost.
func (s *system) failedOver(err error) {
	s.Helper()
	if err != nil {
		s.Error(err)
	}
	over := &s.failovers[len(s.failovers)-1]
	over.To = time.Now()
	s.log = append(s.log, fmt.Sprintf("%s the failover of %s has ended", over.To.Format(clock), over.From.Format(clock)))
	from, to := over.From.Add(-slack), over.To
	s.health.Replaced()
	s.later(3*time.Second, func() { s.broken.Go(func() { s.resend(from, to) }) }) // beside what else happens: it may have to wait
}

func (s *system) later(after time.Duration, do func()) {
	s.undo = append(s.undo, undo{time.Now().Add(after), do})
}

// failover has the replica replace the master, beside what else happens.
func (s *system) failover(do func(context.Context) error) {
	s.failovers = append(s.failovers, Window{From: time.Now()})
	go func() {
		ctx, cancel := context.WithTimeout(s.Context(), limit)
		defer cancel()
		s.replaced <- do(ctx)
	}()
}

// each calls do for both servers, as far as they answer.
func (s *system) each(do func(context.Context, *redis.Client) error) {
	s.sentinel.Each(func(c *redis.Client) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_ = do(ctx, c)
	})
}

// act does what an event says.
func (s *system) act(e Event) {
	s.Helper()
	s.log = append(s.log, time.Now().Format(clock)+" "+e.String())
	worker := s.workers[min(e.Process, Workers-1)].Process
	switch e.Fault {
	case Switch:
		s.failover(func(ctx context.Context) error { return s.sentinel.Switch(ctx, e.Lasts) })
	case KillMaster:
		s.failover(s.sentinel.Crash)
	case StallMaster:
		s.failover(func(ctx context.Context) error { return s.sentinel.Stall(ctx, e.Lasts) })
	case PauseMaster:
		master := s.sentinel.Master()
		master.Pause()
		s.later(e.Lasts, master.Resume)
	case FullMaster:
		s.each(func(ctx context.Context, c *redis.Client) error { return c.ConfigSet(ctx, "maxmemory", "1").Err() })
		s.later(e.Lasts, func() { s.broken.Go(s.refill) })
	case FlushScripts:
		s.each(func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
	case KillClients:
		s.each(func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "CLIENT", "KILL", "TYPE", "normal").Err()
		})
	case Step:
		by := stepped
		if e.Process%2 == 0 {
			by = -by
		}
		s.setClocks(by)
		n := len(s.steps)
		s.steps = append(s.steps, Window{From: time.Now()})
		s.later(e.Lasts, func() {
			s.setClocks(0)
			s.steps[n].To = time.Now()
			s.log = append(s.log, time.Now().Format(clock)+" the clocks are right")
		})
	case KillWorker:
		w := min(e.Process, Workers-1)
		s.killWorker(w)
		s.startWorker(w)
	case PauseWorker:
		_ = worker.Signal(syscall.SIGSTOP)
		s.later(e.Lasts, func() {
			_ = worker.Signal(syscall.SIGCONT)
			s.log = append(s.log, time.Now().Format(clock)+" the worker goes on")
		})
	case Partition:
		s.onLinks(e, (*chaos.Link).Cut)
	case LoseReplies:
		s.onLinks(e, (*chaos.Link).LoseReplies)
	case Drip:
		s.onLinks(e, (*chaos.Link).Drip)
	}
}

// onLinks breaks the network of a process.
func (s *system) onLinks(e Event, do func(*chaos.Link, time.Duration)) {
	for _, l := range s.links[e.Process] {
		s.broken.Go(func() { do(l, e.Lasts) })
	}
}

// refill gives the servers memory again, also one that stands still just now. One that was killed has it when it comes back.
func (s *system) refill() {
	for full, began := s.sentinel.NodeAddrs(), time.Now(); len(full) > 0; {
		s.each(func(ctx context.Context, c *redis.Client) error {
			err := c.ConfigSet(ctx, "maxmemory", "0").Err()
			if err == nil {
				full = slices.DeleteFunc(full, func(addr string) bool { return addr == c.Options().Addr })
			}
			return err
		})
		if time.Since(began) > limit {
			s.Errorf("%v have no memory", full)
			return
		}
	}
}

func (s *system) setClocks(by time.Duration) {
	s.Helper()
	for _, addr := range s.sentinel.NodeAddrs() {
		if err := s.clocks.Set(addr, by); err != nil {
			s.Error(err)
		}
	}
}
