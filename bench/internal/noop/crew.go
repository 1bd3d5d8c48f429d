// Package noop measures tasks that do nothing: what asynq, the locks and the calls to Redis cost, and nothing else.
package noop

import (
	"context"
	"runtime"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

// Crew is asynq servers that do a slice of their tasks at a time. They rest in between.
type Crew struct {
	slice int
	gate  *gate
	meter usage.Meter
	stop  func() error
}

// Start starts servers for tasks that have been enqueued, each of which must call work. A slice is so many of them.
func Start(at *server.Server, slice int, start func(work func()) (stop func() error, err error)) (*Crew, error) {
	runtime.GC() // the garbage of the enqueueing
	c := &Crew{slice: slice, gate: newGate(), meter: usage.Meter{Servers: []*server.Server{at}}}
	var err error
	if c.stop, err = start(c.gate.come); err != nil {
		return nil, err
	}
	return c, nil
}

// Warm lets the servers do some tasks that are not measured.
func (c *Crew) Warm(ctx context.Context, tasks int) error { return c.gate.pass(ctx, tasks) }

// Learn is [Crew.Warm] with a slice, and finds out which commands must be counted in the slices that follow.
func (c *Crew) Learn(ctx context.Context) (err error) {
	c.meter.Sent, err = server.Learn(ctx, c.meter.Servers[0], func() error { return c.Warm(ctx, c.slice) })
	return err
}

// Slice lets the servers do a slice, and returns what each task has cost. Those in flight at the beginning and at the
// end make up for each other.
func (c *Crew) Slice(ctx context.Context) (usage.Cost, error) {
	return c.meter.Measure(ctx, func() (int, error) { return c.slice, c.Warm(ctx, c.slice) })
}

// Close ends the servers, also those that rest.
func (c *Crew) Close() error {
	c.gate.open()
	return c.stop()
}
