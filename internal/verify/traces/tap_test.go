package traces

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

var (
	// errDead is what a killed worker hears of its commands.
	errDead = errors.New("this worker was killed")
	// errLost is what a client makes of a reply that has not come.
	errLost = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

// fault is what happens to a call.
type fault int

// The faults.
const (
	none fault = iota
	lost       // it is executed, and its reply is lost
	late       // its caller gives it up, and it is executed when the recorder says so
)

// tap is on the connections of a worker. It brings a fault about, once, and can kill the worker: then nothing is sent any more.
type tap struct {
	dead chan struct{}
	once sync.Once
	pass sync.RWMutex // held by the commands that are under way

	mu     sync.Mutex
	fault  fault
	at     string // how the signature of the call begins
	late   []redis.Cmder
	struck chan struct{} // closed once the fault has happened

	fetches map[string]bool // the names of those that were sent
	awaited string          // how the signature of the call begins that is sent next in place of the late one,
	again   chan struct{}   // and what is closed once it was answered
}

func newTap() *tap {
	return &tap{dead: make(chan struct{}), struck: make(chan struct{}), fetches: map[string]bool{}, again: make(chan struct{})}
}

// arm has a fault happen to the next call whose signature begins so. If replies are to be lost, it is one that has taken tasks or has ended runs.
func (t *tap) arm(f fault, at string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault, t.at = f, at
}

// kill returns once nothing is under way.
func (t *tap) kill() {
	t.pass.Lock()
	defer t.pass.Unlock()
	t.once.Do(func() { close(t.dead) })
}

func (t *tap) isDead() bool {
	select {
	case <-t.dead:
		return true
	default:
		return false
	}
}

func (*tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return t.send([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return t.send(cmds, func() error { return next(ctx, cmds) })
	}
}

// send sends commands, unless a fault happens to them.
func (t *tap) send(cmds []redis.Cmder, send func() error) error {
	if signatureOf(cmds[0]) == "" { // it may block, and changes nothing that counts
		if t.isDead() {
			return fail(cmds, errDead)
		}
		return send()
	}
	t.pass.RLock()
	defer t.pass.RUnlock()
	switch {
	case t.isDead():
		return fail(cmds, errDead)
	case t.strikes(late, cmds):
		return fail(cmds, errLost)
	}
	t.learn(cmds)
	err := send()
	t.answered(cmds)
	if err == nil && t.strikes(lost, cmds) {
		return fail(cmds, errLost)
	}
	return err
}

// answered notes that the call in place of the late one was answered.
func (t *tap) answered(cmds []redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cmd := range cmds {
		if t.awaited != "" && cmd.Err() == nil && strings.HasPrefix(signatureOf(cmd), t.awaited) {
			close(t.again)
			t.awaited = ""
		}
	}
}

// learn keeps the names of fetches, which the names of their runs begin with.
func (t *tap) learn(cmds []redis.Cmder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if _, name, ok := strings.Cut(fmt.Sprint(arg), "}:recalled:"); ok {
				t.fetches[name] = true
			}
		}
	}
}

// began reports whether a run is of a fetch of this worker.
func (t *tap) began(run string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, _, _ := strings.Cut(run, ".")
	return t.fetches[name]
}

// strikes reports whether a fault happens to commands now.
func (t *tap) strikes(f fault, cmds []redis.Cmder) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault != f {
		return false
	}
	for _, cmd := range cmds {
		if !strings.HasPrefix(signatureOf(cmd), t.at) || !strings.HasSuffix(signatureOf(cmd), ",recalled") {
			continue
		}
		if c, ok := cmd.(*redis.Cmd); ok && f == lost {
			if values, _ := c.Slice(); len(values) == 0 { // it has taken nothing
				continue
			}
		}
		if f == late {
			t.late, t.awaited = cmds, t.at
		}
		t.fault = none
		close(t.struck)
		return true
	}
	return false
}

// held returns the commands that are late.
func (t *tap) held() []redis.Cmder {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late
}

// fail has commands fail.
func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// signatureOf returns the signature of the keys of a script; "" if a command is none.
func signatureOf(cmd redis.Cmder) string {
	args := cmd.Args()
	s := step{line: line{args: make([]string, len(args))}}
	for i, arg := range args {
		s.args[i] = fmt.Sprint(arg)
	}
	keys, _ := s.call()
	return signature(keys)
}
