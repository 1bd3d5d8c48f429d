package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/process"
)

// These failovers may lose writes that were answered, as those of a real Sentinel do. Each returns when all sentinels agree on the new
// master and the old one follows it. They may be called from any goroutine, one at a time, and no other method meanwhile.

// Hurry lets the sentinels give up a master that has not answered for so long, and try again after twice as long as a failover may take.
func (s *Sentinel) Hurry(ctx context.Context, down, failover time.Duration) error {
	for _, w := range s.watchers {
		client := w.impatient()
		err := client.Do(ctx, "SENTINEL", "SET", masterName, "down-after-milliseconds", strconv.FormatInt(down.Milliseconds(), 10),
			"failover-timeout", strconv.FormatInt(failover.Milliseconds(), 10)).Err()
		_ = client.Close()
		if err != nil {
			return fmt.Errorf("redistest: sentinel %s: %w", w.Addr(), err)
		}
	}
	return nil
}

// Crash kills the master. It comes back empty, as the replica of the new one.
func (s *Sentinel) Crash(ctx context.Context) error {
	old, next := s.Master(), s.Replica()
	old.Kill()
	return s.replaced(ctx, 0, func() error { return old.run("--replicaof", loopback+" "+strconv.Itoa(next.port)) })
}

// Stall stops the master until the sentinels have replaced it. Then it goes on, and takes itself for the master for a while.
func (s *Sentinel) Stall(ctx context.Context, lingers time.Duration) error {
	old := s.Master()
	old.Pause()
	defer old.Resume()
	return s.replaced(ctx, lingers, func() error { old.Resume(); return nil })
}

// Switch is SENTINEL FAILOVER. The old master accepts writes for a while after the promotion.
func (s *Sentinel) Switch(ctx context.Context, lingers time.Duration) error {
	watcher := s.watchers[0].impatient()
	defer watcher.Close()
	next := s.Replica().impatient()
	defer next.Close()
	err := process.Poll(ctx, nil, func() error { // it may not have looked at the replica lately, or give up for want of time
		if isMaster(ctx, next) == nil {
			return nil
		}
		return errors.Join(errors.New("the replica is not promoted"), watcher.Do(ctx, "SENTINEL", "FAILOVER", masterName).Err())
	})
	if err != nil {
		return fmt.Errorf("redistest: failover: %w", err)
	}
	return s.replaced(ctx, lingers, func() error { return nil })
}

// replaced returns when the replica has taken the place of the master, which is brought back then.
func (s *Sentinel) replaced(ctx context.Context, lingers time.Duration, back func() error) error {
	next := s.Replica().impatient()
	defer next.Close()
	if err := process.Poll(ctx, nil, func() error { return isMaster(ctx, next) }); err != nil {
		return fmt.Errorf("redistest: %s is not promoted: %w", s.Replica().Addr(), err)
	}
	if err := back(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lingers):
	}
	// The sentinels would do this too, after 8 s.
	if err := process.Poll(ctx, nil, func() error { return s.Master().follow(ctx, s.Replica()) }); err != nil {
		return fmt.Errorf("redistest: %s does not follow: %w", s.Master().Addr(), err)
	}
	s.master = 1 - s.master
	return s.agreed(ctx)
}

// Each calls do with a client of each of the two servers.
func (s *Sentinel) Each(do func(*redis.Client)) {
	for _, n := range s.nodes {
		client := n.impatient()
		do(client)
		_ = client.Close()
	}
}

// NodeAddrs returns the addresses of the two servers.
func (s *Sentinel) NodeAddrs() []string { return []string{s.nodes[0].Addr(), s.nodes[1].Addr()} }
