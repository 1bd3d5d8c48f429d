package redistest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// movedTogether is how many keys one MIGRATE takes along, as with redis-cli --cluster reshard.
const movedTogether = 10

// A Move is a hash slot on its way from one master to another. While it is under way, the source serves the keys that it still
// has and answers ASK for others; TRYAGAIN is the answer to a command of several keys of which only some are there.
type Move struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

// MoveSlot moves a hash slot with all of its keys to another master at once: the quick move.
func (c *Cluster) MoveSlot(tb testing.TB, slot int, to *Server) {
	tb.Helper()
	c.BeginMove(tb, slot, to).Finish(tb)
}

// BeginMove begins to move a hash slot to another master and leaves all keys where they are: a slow move, which lasts until
// Finish. The steps are those of redis-cli --cluster reshard.
func (c *Cluster) BeginMove(tb testing.TB, slot int, to *Server) *Move {
	tb.Helper()
	m := &Move{cluster: c, slot: slot, to: to}
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := m.begin(ctx); err != nil {
		tb.Fatalf("redistest: slot %d to %s: %v", slot, to.Addr(), err)
	}
	return m
}

// From returns the master that has the slot until Finish.
func (m *Move) From() *Server { return m.from }

// To returns the master that is to have the slot.
func (m *Move) To() *Server { return m.to }

// Keys moves these keys, all of the slot, in one step. Those that the source does not have are passed over.
func (m *Move) Keys(tb testing.TB, keys ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := m.migrate(ctx, keys); err != nil {
		tb.Fatalf("redistest: keys of slot %d to %s: %v", m.slot, m.to.Addr(), err)
	}
}

// Some moves at most n keys that the source still has, whichever they are, and returns how many it has moved.
func (m *Move) Some(tb testing.TB, n int) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	moved, err := m.some(ctx, n)
	if err != nil {
		tb.Fatalf("redistest: %d keys of slot %d to %s: %v", n, m.slot, m.to.Addr(), err)
	}
	return moved
}

// GiveUp moves what the source still has, and tells only the source that the slot has its new master. Until Finish, neither serves it, and each
// sends clients to the other. That is so for a moment when a redis-cli before 7.0 has moved a slot, because it tells the masters in any order.
func (m *Move) GiveUp(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := m.giveUp(ctx); err != nil {
		tb.Fatalf("redistest: slot %d of %s: %v", m.slot, m.from.Addr(), err)
	}
}

// Finish moves what the source still has and gives the slot to its new master, as every master knows afterwards.
func (m *Move) Finish(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), readyTimeout)
	defer cancel()
	if err := m.finish(ctx); err != nil {
		tb.Fatalf("redistest: slot %d to %s: %v", m.slot, m.to.Addr(), err)
	}
}

func (m *Move) begin(ctx context.Context) error {
	target, err := m.to.nodeID(ctx)
	if err != nil {
		return err
	}
	if has, err := m.to.serves(ctx, m.slot); err != nil || has {
		return errors.Join(err, errors.New("no other master has the slot"))
	}
	if err := m.findSource(ctx); err != nil {
		return err
	}
	source, err := m.from.nodeID(ctx)
	if err != nil {
		return err
	}
	// The target first: a source that migrates sends clients there.
	if err := m.to.setSlot(ctx, m.slot, "IMPORTING", source); err != nil {
		return err
	}
	return m.from.setSlot(ctx, m.slot, "MIGRATING", target)
}

// findSource finds the master that the slot is to leave. The error says how each node sees the cluster.
func (m *Move) findSource(ctx context.Context) error {
	for _, s := range m.cluster.nodes {
		has, err := s.serves(ctx, m.slot)
		if err != nil {
			return err
		}
		if has {
			m.from = s
			return nil
		}
	}
	var views strings.Builder
	for _, s := range m.cluster.nodes {
		client := s.impatient()
		nodes, err := client.ClusterNodes(ctx).Result()
		client.Close()
		fmt.Fprintf(&views, "\n%s, %v:\n%s", s.Addr(), err, nodes)
	}
	return fmt.Errorf("no master has the slot:%s", views.String())
}

func (m *Move) some(ctx context.Context, n int) (moved int, err error) {
	source := m.from.impatient()
	defer source.Close()
	for moved < n {
		keys, err := source.ClusterGetKeysInSlot(ctx, m.slot, min(movedTogether, n-moved)).Result()
		if err != nil || len(keys) == 0 {
			return moved, err
		}
		if err := m.migrate(ctx, keys); err != nil {
			return moved, err
		}
		moved += len(keys)
	}
	return moved, nil
}

func (m *Move) migrate(ctx context.Context, keys []string) error {
	source := m.from.impatient()
	defer source.Close()
	args := []any{"MIGRATE", loopback, m.to.port, "", 0, stopTimeout.Milliseconds(), "REPLACE", "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	return source.Do(ctx, args...).Err() // NOKEY, when none is there, is no error
}

func (m *Move) giveUp(ctx context.Context) error {
	if _, err := m.some(ctx, math.MaxInt); err != nil {
		return err
	}
	target, err := m.to.nodeID(ctx)
	if err != nil {
		return err
	}
	return m.from.setSlot(ctx, m.slot, "NODE", target)
}

func (m *Move) finish(ctx context.Context) error {
	if _, err := m.some(ctx, math.MaxInt); err != nil { // no key comes back to a source that migrates
		return err
	}
	target, err := m.to.nodeID(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(m.cluster.nodes), func(s *Server) bool { return s == m.from || s == m.to })
	var clients []*redis.Client // connected before, so that the nodes learn of the move at almost the same time
	defer func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	for _, s := range slices.Concat([]*Server{m.to, m.from}, others) {
		client := s.impatient()
		clients = append(clients, client)
		if err := client.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	m.cluster.settle(ctx)
	for _, client := range clients {
		if err := client.Do(ctx, "CLUSTER", "SETSLOT", m.slot, "NODE", target).Err(); err != nil {
			return err
		}
	}
	return nil
}

// settleTimeout bounds the wait for messages, some of which may have been lost with their connection.
const settleTimeout = 2 * time.Second

// settle waits until no message between the nodes is under way that says which slots its sender has. Two such messages that arrive after
// quick moves to and fro, one from before the first and one from before the last move, make a Redis before 7.2.2 yield the slot that it was
// given back, with its keys: it remembers that the node before did not claim the slot, and then believes any that does, however old its claim
// (https://github.com/redis/redis/pull/12564). No master serves the slot afterwards.
func (c *Cluster) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = process.Poll(ctx, nil, func() error {
		received, err := c.claims(ctx, "received") // first: what is counted here was sent before
		if err != nil {
			return err
		}
		sent, err := c.claims(ctx, "sent")
		if err == nil && sent != received {
			err = fmt.Errorf("%d messages are under way", sent-received)
		}
		return err
	})
}

// claims counts the messages that say which slots their sender has, and that all nodes have sent or received.
func (c *Cluster) claims(ctx context.Context, direction string) (n int, err error) {
	for _, s := range c.nodes {
		client := s.impatient()
		info, err := client.ClusterInfo(ctx).Result()
		client.Close()
		if err != nil {
			return 0, err
		}
		for _, kind := range []string{"ping", "pong", "meet", "update"} {
			count, _ := strconv.Atoi(parseFields(info)["cluster_stats_messages_"+kind+"_"+direction]) // absent before the first
			n += count
		}
	}
	return n, nil
}

// setSlot tells this node about a slot: what happens to it, and which node has to do with that.
func (s *Server) setSlot(ctx context.Context, slot int, state, node string) error {
	client := s.impatient()
	defer client.Close()
	return client.Do(ctx, "CLUSTER", "SETSLOT", slot, state, node).Err()
}

// nodeID returns the name of this node in its cluster.
func (s *Server) nodeID(ctx context.Context) (string, error) {
	client := s.impatient()
	defer client.Close()
	return client.ClusterMyID(ctx).Result()
}

// serves reports whether this node itself has the slot.
func (s *Server) serves(ctx context.Context, slot int) (bool, error) {
	client := s.impatient()
	defer client.Close()
	ranges, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool {
		return r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 && r.Nodes[0].Addr == loopback+":"+strconv.Itoa(s.port)
	}), nil
}
