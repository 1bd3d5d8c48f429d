package pipeline_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// patience bounds every wait for an event in real time.
const patience = 20 * time.Second

// echo is a script that returns its argument.
var echo = pipeline.NewScript("return ARGV[1]")

// wire looks at what a client sends: each round trip, with the last argument of each of its commands. It can hold round
// trips up, and answer them itself instead of a server, each command with its last argument.
type wire struct {
	answer func() error // nil when a server answers; an error fails the whole round trip
	began  chan struct{}
	goOn   chan struct{}

	mu    sync.Mutex
	hold  bool
	trips [][]any
	evals int // commands that carry a source
}

func newWire(answer func() error) *wire {
	return &wire{answer: answer, began: make(chan struct{}), goOn: make(chan struct{})}
}

// at once is the answer of a server that never fails.
func atOnce() error { return nil }

// client returns a client whose round trips all go through w, of a server that does not exist.
func (w *wire) client(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	c.AddHook(w)
	return c
}

// holds makes each round trip wait, after it has told of itself on began, for a value on goOn.
func (w *wire) holds(hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = hold
}

func (w *wire) trip(cmds []redis.Cmder, send func() error) error {
	var last []any
	for _, cmd := range cmds {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			last = append(last, cmd.Args()[len(cmd.Args())-1])
		}
	}
	if len(last) == 0 { // the handshake of a new connection
		return send()
	}
	w.mu.Lock()
	w.trips = append(w.trips, last)
	hold := w.hold
	for _, cmd := range cmds {
		if cmd.Name() == "eval" {
			w.evals++
		}
	}
	w.mu.Unlock()
	if hold {
		w.began <- struct{}{}
		<-w.goOn
	}
	if w.answer == nil {
		return send()
	}
	err := w.answer()
	for _, cmd := range cmds {
		if err != nil {
			cmd.SetErr(err)
		} else {
			cmd.(interface{ SetVal(any) }).SetVal(cmd.Args()[len(cmd.Args())-1])
		}
	}
	return err
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return w.trip([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return w.trip(cmds, func() error { return next(ctx, cmds) })
	}
}

// sizes returns how many scripts each round trip has carried.
func (w *wire) sizes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sizes []int
	for _, trip := range w.trips {
		sizes = append(sizes, len(trip))
	}
	return sizes
}

// sent returns the last arguments of all commands, in the order of sending.
func (w *wire) sent() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.trips...)
}

// sources returns how many commands have carried the source of their script.
func (w *wire) sources() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.evals
}

// next waits for an event.
func next[T any](t testing.TB, events <-chan T) (event T) {
	t.Helper()
	select {
	case event = <-events:
	case <-time.After(patience):
		t.Fatalf("nothing happened within %v", patience)
	}
	return event
}

// send makes a call that must be taken, and returns where its answer comes.
func send(t testing.TB, n *pipeline.Server, script *pipeline.Script, keys []string, args ...any) <-chan *pipeline.Call {
	t.Helper()
	answers := make(chan *pipeline.Call, 1)
	if err := n.Send(pipeline.NewCall(func(c *pipeline.Call) { answers <- c }, script, keys, args...)); err != nil {
		t.Fatalf("send %v: %v", args, err)
	}
	return answers
}

// queued waits until a call waits to be sent.
func queued(t testing.TB, n *pipeline.Server) {
	t.Helper()
	for began := time.Now(); n.Queued() == 0; <-time.After(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("no call is queued within %v", patience)
		}
	}
}

// ran is what Run has returned.
type ran struct {
	reply any
	err   error
}

// run makes a call on a goroutine of its own.
func run(ctx context.Context, n *pipeline.Server, c *pipeline.Call) <-chan ran {
	out := make(chan ran, 1)
	go func() {
		reply, err := n.Run(ctx, c)
		out <- ran{reply, err}
	}()
	return out
}

// isIO reports whether an error is one of the connection.
func isIO(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}
