package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/preflight"
	"github.com/railtoken/railtoken/locking"
)

// preflight checks every Redis that the worker needs.
func (w *Worker) preflight(ctx context.Context) error {
	err := w.attached.Check(ctx)
	if separate, ok := errors.AsType[*attach.SeparateLocksError](err); ok {
		return separate
	}
	if err := refused(w.cfg.Redis, w.cfg.Redis.addrVariable("REDIS"), err); err != nil {
		return err
	}
	switch {
	case w.cfg.Locker != nil:
		return nil
	case w.lockConn == nil:
		return w.preflightNodes(ctx)
	case w.locker.RedisKeys == nil: // else the locks are checked with the tasks
		needs := preflight.Needs{Locks: true, AllowEviction: w.cfg.AllowEviction}
		return refused(w.lockAt(), w.lockAt().addrVariable(lockVariable),
			preflight.Check(ctx, w.lockConn, needs, w.cfg.Logger))
	}
	return nil
}

// refused adds to a preflight error which Redis it is about, and the setting that names this Redis.
func refused(at Redis, setting string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("worker: Redis at %s (%s) %w", at, setting, err)
}

// preflightNodes checks the servers of a Redlock concurrently. Like the locks, it tolerates failed servers as long as a
// majority can be used.
func (w *Worker) preflightNodes(ctx context.Context) error {
	// The guard would never let a server vote that may evict keys.
	allowEviction := w.cfg.AllowEviction && w.cfg.LockGuard == locking.GuardOff
	errs, ids := make([]error, len(w.lockTest)), make([]string, len(w.lockTest))
	var wg sync.WaitGroup
	for i, client := range w.lockTest {
		at := w.cfg.LockRedis
		at.Addr, at.Nodes = at.Nodes[i], nil
		wg.Go(func() {
			errs[i] = refused(at, nodesVariable, preflight.Check(ctx, client,
				preflight.Needs{
					Locks: true, Info: w.cfg.LockGuard != locking.GuardOff, AllowEviction: allowEviction,
				}, w.cfg.Logger))
			ids[i] = runID(ctx, client)
		})
	}
	wg.Wait()
	for i, id := range ids {
		if j := slices.Index(ids, id); id != "" && j < i && errs[i] == nil {
			errs[i] = fmt.Errorf("worker: Redis at %s is the same server as %s: name each server once in %s",
				w.cfg.LockRedis.Nodes[i], w.cfg.LockRedis.Nodes[j], nodesVariable)
		}
	}
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
		} else {
			w.cfg.Logger.WarnContext(ctx, "a lock server cannot be used", "error", err)
		}
	}
	if good > len(errs)/2 {
		return nil
	}
	return fmt.Errorf("worker: only %d of %d lock servers can be used, which is no majority: %w", good, len(errs),
		errors.Join(errs...))
}

// runID returns the run ID of a server, or an empty string if it is not known.
func runID(ctx context.Context, client redis.UniversalClient) string {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}
