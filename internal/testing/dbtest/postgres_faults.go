package dbtest

import (
	"syscall"
	"testing"
	"time"
)

// Stop ends the server in order, along with its sessions, and returns when the process is gone.
func (p *Postgres) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return
	}
	_ = p.proc.Resume()
	_ = p.proc.Signal(syscall.SIGINT) // "fast": sessions are ended
	select {
	case <-p.proc.Exited():
	case <-time.After(stopTimeout):
		_ = p.proc.KillAll()
	}
	p.proc = nil
}

// Kill ends all processes of the server at once, by SIGKILL, and returns when they are gone.
func (p *Postgres) Kill(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return
	}
	if err := p.proc.KillAll(); err != nil {
		tb.Fatal(err)
	}
	p.proc = nil
}

// Restart runs the server again, on the same port and with its data, and returns when it answers. A server that still
// runs is stopped first.
func (p *Postgres) Restart(tb testing.TB) {
	tb.Helper()
	p.Stop()
	if err := p.run(); err != nil {
		tb.Fatal(err)
	}
}

// Pause stops all processes of the server by SIGSTOP: connections stay open, and nothing is answered until Resume. It
// needs Linux.
func (p *Postgres) Pause(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		tb.Fatal("dbtest: the server does not run")
	}
	if err := p.proc.Pause(); err != nil {
		tb.Fatal(err)
	}
}

// Resume lets a paused server run on. What clients sent in the meantime is answered then.
func (p *Postgres) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil {
		_ = p.proc.Resume()
	}
}
