package line

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
)

// Conn returns the Redis client of an asynq server whose tasks are to be parked. Each server needs a Conn of its own.
func (e *Engine) Conn(opts broker.Options) *broker.Conn {
	opts.Tasks, opts.Foreign = (*tasks)(e), &e.runs.foreign
	e.runs.plain.Store(opts.Plain)
	opts.Locks, opts.Types, opts.Freed = e.locks, &e.types, e.freed
	opts.Park = (*tasks)(e).parkFetched
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
	opts.Beside = broker.Beside{Key: e.owed(), Due: e.idleLooks.due, None: e.idleLooks.none}
	conn := broker.New(e.client, opts)
	context.AfterFunc(e.closing, conn.Silence) // of a server that was not shut down, too
	return conn
}

// tasks is an Engine as a Conn sees it.
type tasks Engine

// Fetched notes the run of a task.
func (e *tasks) Fetched(f broker.Fetched) {
	e.runs.add(e.runOf(f))
}

// runOf returns the run of a task that was fetched.
func (e *tasks) runOf(f broker.Fetched) *Run {
	w := ParseWait(f.Wait)
	r := &Run{
		queue: (*Engine)(e), task: Task{Queue: f.Queue, ID: f.ID}, nonce: f.Run, message: f.Message, met: w.Conflict, sequence: f.Sequence,
		tries: w.Attempt, woken: f.Woken, wokenFor: f.WokenFor, since: time.Now(), recorded: f.Recorded, taken: f.Taken,
	}
	if key, ok := w.Key(); ok && f.Woken && !w.Own {
		r.owes = WaitersKey(key)
	}
	return r
}
