package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// fault is what happens at a step.
type fault string

// The faults.
const (
	before fault = "before" // the process stops, and the step is not taken
	after  fault = "after"  // the step is taken, and the process stops before it hears of it
	late   fault = "late"   // the step is taken twice, as when the client sends it again some time after the reply was lost; the process lives
	// (a fetch, which the client does not send again, is taken once, and the process hears of an error)
	lost fault = "lost" // the step is taken, and the process hears of an error; it lives
)

// resendAfter is more than the client's ReadTimeout.
const resendAfter = 4 * time.Second

// lives reports whether the process goes on.
func (f fault) lives() bool { return f == late || f == lost }

// errLost is what the client makes of an answer that has not come.
var errLost = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// errStopped is what a stopped process is told at the end of a run, when it has to go away.
var errStopped = errors.New("this process was stopped")

// spot is a step of a scenario: the nth of a name. The zero value is none.
type spot struct {
	name string
	nth  int
}

func (s spot) String() string { return fmt.Sprintf("%q no. %d", s.name, s.nth) }

// tap is a redis.Hook on all connections of one process. It counts the steps of the process and brings its fault about at one of them.
type tap struct {
	m     *miniredis.Miniredis
	at    spot
	fault fault
	// stop ends the process for all others, and found looks at what it leaves. When the process lives, found is called alone, before
	// the step. Both may be nil.
	stop  func()
	found func(step redis.Cmder)
	// sent is called for each command to which the server has given its answer, with the time at which it was sent. It may be nil.
	sent func(cmd redis.Cmder, began time.Time)
	// fetching, when not nil, is held while a task is fetched, so that what the process holds is known.
	fetching *sync.Mutex

	mu    sync.Mutex
	steps []string
	taken map[string]int // how many steps there were of each name
	dead  chan struct{}  // closed when the process has stopped
	sends sync.WaitGroup // commands that are on their way
	over  chan struct{}  // closed at the end of the run
}

func newTap(m *miniredis.Miniredis, at spot, f fault) *tap {
	return &tap{m: m, at: at, fault: f, taken: map[string]int{}, dead: make(chan struct{}), over: make(chan struct{})}
}

// seen returns all steps, and how many there were of each name.
func (t *tap) seen() (steps []string, taken map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.steps), maps.Clone(t.taken)
}

// count numbers a step and reports whether it is the one.
func (t *tap) count(step string) bool {
	if step == "" || step == idleFetch || step == idleForward || step == idleChatter {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, step)
	t.taken[step]++
	return t.at == spot{step, t.taken[step]}
}

func (t *tap) isDead() bool {
	select {
	case <-t.dead:
		return true
	default:
		return false
	}
}

// die stops the process. It returns at once; whoever works for the process finds out at its next step.
func (t *tap) die() {
	if t.stop != nil {
		t.stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.dead)
}

// begin notes that a command is on its way, and reports false when the process has stopped.
func (t *tap) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDead() {
		return false
	}
	t.sends.Add(1)
	return true
}

// hang is what a stopped process does until the end of the run: nothing.
func (t *tap) hang(cmds ...redis.Cmder) error {
	<-t.over
	time.Sleep(50 * time.Millisecond) // asynq fetches again at once
	for _, cmd := range cmds {
		cmd.SetErr(errStopped)
	}
	return errStopped
}

// effect takes a step that is not a command. It reports whether the process goes on.
func (t *tap) effect(take func()) bool {
	if t.isDead() {
		return false
	}
	if !t.count(effect) || t.fault.lives() {
		take()
		return true
	}
	if t.fault == after {
		take()
	}
	t.die()
	if t.found != nil {
		t.found(nil)
	}
	return false
}

func (t *tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return t.pass([]redis.Cmder{cmd}, func(cmds []redis.Cmder) error {
			if len(cmds) == 0 {
				return nil
			}
			return next(ctx, cmd)
		})
	}
}

func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return t.pass(cmds, func(cmds []redis.Cmder) error {
			if len(cmds) == 0 {
				return nil
			}
			return next(ctx, cmds)
		})
	}
}

// pass lets commands through. Of a pipeline with the step in it the server gets the commands up to there.
func (t *tap) pass(cmds []redis.Cmder, send func([]redis.Cmder) error) error {
	if isHandshake(cmds) { // also in the middle of a step
		return send(cmds)
	}
	if t.isDead() {
		return t.hang(cmds...)
	}
	began := time.Now()
	at := -1
	for i, cmd := range cmds {
		learn(cmd)
		step := stepOf(t.m, cmd)
		if len(cmds) == 1 && answerIdle(step, cmd) {
			return cmd.Err()
		}
		if t.count(step) {
			at = i
		}
	}
	switch {
	case at < 0:
		if !t.begin() {
			return t.hang(cmds...)
		}
		defer t.sends.Done()
		return t.send(cmds, began, send)
	case t.fault.lives():
		if t.found != nil {
			t.found(cmds[at])
		}
		if t.fault == lost || cmds[at].NoRetry() { // no client sends it again
			_ = t.send(cmds, began, send)
			if t.fault == late {
				time.Sleep(resendAfter)
			}
			for _, cmd := range cmds {
				cmd.SetErr(errLost)
			}
			return errLost
		}
		_ = send(cmds)
		time.Sleep(resendAfter)
		return t.send(cmds, began, send)
	}
	t.die()
	if t.fault == after {
		at++
	}
	_ = t.send(cmds[:at], began, send)
	t.sends.Wait() // the server takes what was sent
	if t.found != nil {
		t.found(nil)
	}
	return t.hang(cmds...)
}

// send sends commands, that were to be sent at a time or were sent then first, and tells of it.
func (t *tap) send(cmds []redis.Cmder, began time.Time, send func([]redis.Cmder) error) error {
	if len(cmds) == 0 {
		return send(cmds)
	}
	if t.fetching != nil && len(cmds[0].Args()) > 3 && len(fetchedFrom(cmds[0])) > 0 {
		t.fetching.Lock()
		defer t.fetching.Unlock()
	}
	err := send(cmds)
	for _, cmd := range cmds {
		if t.sent != nil && cmd.Err() == nil {
			t.sent(cmd, began)
		}
	}
	return err
}

// answerIdle answers a look for tasks where there are none as the server would.
func answerIdle(step string, cmd redis.Cmder) bool {
	answer, ok := cmd.(answered)
	switch {
	case !ok:
		return false
	case step == idleFetch:
		answer.SetVal([]any{})
	case step == idleForward, step == idleChatter:
		answer.SetVal(int64(0))
	default:
		return false
	}
	return true
}

// isHandshake reports whether commands only make a connection, before a command that has come through the hook already.
func isHandshake(cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		switch cmd.Name() {
		case "hello", "client", "auth", "select":
		default:
			return false
		}
	}
	return true
}
