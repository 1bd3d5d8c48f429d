package line

import (
	"context"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
)

// Conn returns the Redis client of an asynq server whose tasks are to be parked. Each server needs a Conn of its own.
func (e *Engine) Conn(opts broker.Options) *broker.Conn {
	opts.Tasks, opts.Foreign = (*tasks)(e), &e.runs.foreign
	e.runs.plain.Store(opts.Plain)
	opts.Marks = e.ends != nil
	opts.Locks, opts.Types = e.locks, &e.types
	if e.locks != nil {
		opts.KeysIn = e.parkers.keysIn
		opts.Parking = e.parkingAtFetch()
	}
	opts.Background = func(limit time.Duration, do func(context.Context)) bool {
		return e.background(e.closing, limit, do)
	}
	if opts.Logger == nil {
		opts.Logger = e.log
	}
	e.lookAfter()
	if e.names.Count() > 0 {
		opts.Owed = func(lane int) string { return OwedIn(e.names.indexIn(lane)) }
	}
	opts.Beside = broker.Beside{Key: OwedIn(e.names.start()), Due: e.idleLooks.due, None: e.idleLooks.none}
	conn := broker.New(e.client, opts)
	e.mu.Lock()
	e.conns = append(slices.DeleteFunc(e.conns, func(c *broker.Conn) bool { return c.Pulse().Over }), conn)
	e.mu.Unlock()
	context.AfterFunc(e.closing, conn.Silence) // of a server that was not shut down, too
	return conn
}
