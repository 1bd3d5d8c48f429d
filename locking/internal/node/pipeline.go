package node

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// apartPause is for how long no calls are put together after a server has refused that.
const apartPause = time.Minute

// pipeline makes several calls in one round trip, and in a second one those whose script the server did not know. Those that it
// refuses to make together, as a node of a cluster does with keys of several slots, are then made one by one.
func (n *Node) pipeline(ctx context.Context, batch []*Call) {
	units := arrange(batch, n.leastJoint())
	n.roundTrips(ctx, units)
	var refused []*Call
	for i := range units {
		if units[i].refused() {
			refused = append(refused, units[i].calls...)
		}
	}
	if len(refused) == 0 {
		return
	}
	n.roundTrips(ctx, arrange(refused, 0))
	if slices.ContainsFunc(refused, func(c *Call) bool { return c.Err == nil }) {
		n.mu.Lock()
		n.apart = time.Now().Add(apartPause)
		n.mu.Unlock()
	}
}

// leastJoint returns how many calls are put together at least, 0 for none.
func (n *Node) leastJoint() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.apart.IsZero() && time.Now().Before(n.apart) {
		return 0
	}
	return leastJoint
}

// roundTrips makes a round trip, and a second one with the source of those scripts that the server did not know.
func (n *Node) roundTrips(ctx context.Context, units []unit) {
	n.roundTrip(ctx, units, nil)
	var unknown []unit
	var at []int
	for i, u := range units {
		if u.unknown() {
			unknown, at = append(unknown, u), append(at, i)
		}
	}
	if len(unknown) == 0 {
		return
	}
	first := map[*Script]int{}
	for i, u := range slices.Backward(unknown) {
		first[u.command.script] = i // brings the script along for the others
	}
	n.roundTrip(ctx, unknown, first)
	for i, u := range unknown {
		units[at[i]] = u
	}
}

// roundTrip makes the calls in one pipeline. The units at the positions withSource bring the source of their script along.
func (n *Node) roundTrip(ctx context.Context, units []unit, withSource map[*Script]int) {
	cmds := make([]once, len(units))
	for i := range units {
		args := units[i].command.args
		if at, ok := withSource[units[i].command.script]; ok && at == i {
			args = units[i].command.eval()
		}
		cmds[i] = newOnce(ctx, args)
	}
	var err error
	if len(cmds) == 1 {
		_ = n.client.Process(ctx, cmds[0])
	} else {
		pipe := n.client.Pipeline()
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
		units[i].answer(reply, failure)
	}
}
