package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// unbatchedPause is how long calls are not batched after the server has refused a batch.
const unbatchedPause = time.Minute

// Once is a command that clients do not repeat, whatever their MaxRetries. An acquire call that was sent twice could be
// granted again after its release, and the second answer to a release does not tell the effect of the first.
type Once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (Once) NoRetry() bool { return true }

// once is a Once that knows whether it may have been sent.
type once struct {
	Once

	command redis.Cmd // what Once points to: one allocation instead of two
	written atomic.Bool
}

func newOnce(ctx context.Context, args []any) *once {
	c := &once{command: *redis.NewCmd(ctx, args...)}
	c.Cmd = &c.command
	return c
}

// Args returns the arguments. go-redis asks for them when it writes the command to a connection, so a command that has
// failed and was never asked was not sent: there was no connection, or a hook has refused it. A test shows whether this
// still holds.
func (c *once) Args() []any {
	c.written.Store(true)
	return c.Once.Args()
}

// result returns the answer. The error matches [ErrNotSent] if the server will never receive the command.
func (c *once) result() (any, error) {
	reply, err := c.Result()
	if err != nil && !c.written.Load() && !isReply(err) {
		err = notSent(err)
	}
	return reply, err
}

// one makes a single call.
func (s *Server) one(ctx context.Context, c *Call) {
	b := newBatch([]*Call{c})
	cmd := newOnce(ctx, b.command.args)
	_ = s.client.Process(ctx, cmd)
	if rediswire.Says(cmd.Err(), rediswire.NoScript) {
		cmd = newOnce(ctx, b.command.eval())
		_ = s.client.Process(ctx, cmd)
	}
	b.answer(cmd.result())
	b.conclude()
}

// pipeline makes several calls in one round trip, and those whose script the server did not know in a second one. The
// calls of batches that the server refuses, as a cluster does for keys of several slots, are then made one by one.
func (s *Server) pipeline(ctx context.Context, calls []*Call) {
	all := batches(calls, s.minBatch())
	s.roundTrips(ctx, all)
	var refused []*Call
	for i := range all {
		if all[i].refused() {
			refused = append(refused, all[i].calls...)
		}
	}
	if len(refused) == 0 {
		return
	}
	s.roundTrips(ctx, batches(refused, 0))
	if slices.ContainsFunc(refused, func(c *Call) bool { return c.Err == nil }) {
		s.mu.Lock()
		s.unbatchedUntil = time.Now().Add(unbatchedPause)
		s.mu.Unlock()
	}
}

// minBatch returns the smallest number of calls in a batch, or 0 for no batches.
func (s *Server) minBatch() int {
	if s.several {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unbatchedUntil.IsZero() && time.Now().Before(s.unbatchedUntil) {
		return 0
	}
	return minBatch
}

// roundTrips makes a round trip, and a second one with the sources of scripts that the server did not know.
func (s *Server) roundTrips(ctx context.Context, all []batch) {
	s.roundTrip(ctx, all, nil)
	var unknown []batch
	var at []int
	for i, b := range all {
		if b.unknown() {
			unknown, at = append(unknown, b), append(at, i)
		}
	}
	if len(unknown) > 0 {
		first := map[*Script]int{}
		for i, b := range slices.Backward(unknown) {
			first[b.command.script] = i // sends the source for the others, too
		}
		s.roundTrip(ctx, unknown, func(i int) bool { return s.several || first[unknown[i].command.script] == i })
		for i, b := range unknown {
			all[at[i]] = b
		}
	}
	for i := range all {
		all[i].conclude()
	}
}

// roundTrip makes the calls in one pipeline. The batches at the positions for which withSource is true send the sources of their
// scripts.
func (s *Server) roundTrip(ctx context.Context, all []batch, withSource func(i int) bool) {
	cmds := make([]*once, len(all))
	for i := range all {
		args := all[i].command.args
		if withSource != nil && withSource(i) {
			args = all[i].command.eval()
		}
		cmds[i] = newOnce(ctx, args)
	}
	var err error
	if len(cmds) == 1 {
		_ = s.client.Process(ctx, cmds[0])
	} else {
		pipe := s.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err = pipe.Exec(ctx)
	}
	for i, cmd := range cmds {
		reply, failure := cmd.result()
		if failure == nil && reply == nil && err != nil { // the client reports it only for the whole pipeline
			failure = fmt.Errorf("pipeline: %w", err)
			if !cmd.written.Load() {
				failure = notSent(failure)
			}
		}
		all[i].answer(reply, failure)
	}
}
