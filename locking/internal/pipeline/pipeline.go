package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// unbatchedPause is for how long no calls are batched after the server has refused that.
const unbatchedPause = time.Minute

// once is a command that no client repeats by itself, whatever its MaxRetries. An acquire call that was sent twice
// could be granted once more after its release, and the second answer to a release does not tell the effect of the
// first.
type once struct{ *redis.Cmd }

func newOnce(ctx context.Context, args []any) once { return once{redis.NewCmd(ctx, args...)} }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }

// one makes a single call.
func (s *Server) one(ctx context.Context, c *Call) {
	cmd := newOnce(ctx, c.command.args)
	_ = s.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = newOnce(ctx, c.command.eval())
		_ = s.client.Process(ctx, cmd)
	}
	c.Reply, c.Err = cmd.Result()
}

// pipeline makes several calls in one round trip, and in a second one those whose script the server did not know.
// Batches that it refuses, as a server of a cluster does with keys of several slots, are then made call by call.
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

// minBatch returns how many calls are batched at least, 0 for none.
func (s *Server) minBatch() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unbatchedUntil.IsZero() && time.Now().Before(s.unbatchedUntil) {
		return 0
	}
	return minBatch
}

// roundTrips makes a round trip, and a second one with the source of those scripts that the server did not know.
func (s *Server) roundTrips(ctx context.Context, all []batch) {
	s.roundTrip(ctx, all, nil)
	var unknown []batch
	var at []int
	for i, b := range all {
		if b.unknown() {
			unknown, at = append(unknown, b), append(at, i)
		}
	}
	if len(unknown) == 0 {
		return
	}
	first := map[*Script]int{}
	for i, b := range slices.Backward(unknown) {
		first[b.command.script] = i // brings the script along for the others
	}
	s.roundTrip(ctx, unknown, first)
	for i, b := range unknown {
		all[at[i]] = b
	}
}

// roundTrip makes the calls in one pipeline. The batches at the positions withSource bring the source of their script
// along.
func (s *Server) roundTrip(ctx context.Context, all []batch, withSource map[*Script]int) {
	cmds := make([]once, len(all))
	for i := range all {
		args := all[i].command.args
		if at, ok := withSource[all[i].command.script]; ok && at == i {
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
		reply, failure := cmd.Result()
		if failure == nil && reply == nil && err != nil { // the client reports it for the whole pipeline alone
			failure = fmt.Errorf("pipeline: %w", err)
		}
		all[i].answer(reply, failure)
	}
}
