package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/access"
	"github.com/railtoken/railtoken/locking"
)

// preflightTimeout bounds the checks of one Redis.
const preflightTimeout = 5 * time.Second

// errEvicts is why a Redis that evicts keys is refused.
var errEvicts = errors.New("may evict tasks and locks when its memory is full")

// preflight checks that a Redis can be reached, is fit to keep tasks and locks, and lets its user do what they need.
func preflight(ctx context.Context, client redis.UniversalClient, at Redis, setting string, needs access.Needs, allowEviction bool, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	if err := preflightServer(ctx, client, at, setting, allowEviction, log); err != nil {
		return err
	}
	return preflightUser(ctx, client, at, needs, log)
}

// preflightServer checks that a Redis can be reached and is fit.
func preflightServer(ctx context.Context, client redis.UniversalClient, at Redis, setting string, allowEviction bool, log *slog.Logger) error {
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("worker: cannot use Redis at %s: %w: is it running, and are %s and its password right?", at, err, setting)
	}
	info, err := client.Info(ctx).Result()
	if err != nil {
		log.WarnContext(ctx, "Redis does not tell about itself; make sure it is 6.2 or later and does not evict keys", "redis", at.String(), "error", err)
		return nil
	}
	if err := checkInfo(info, at.isCluster(), allowEviction); err != nil {
		remedy := ""
		if errors.Is(err, errEvicts) && !strings.HasPrefix(setting, nodesVariable) {
			remedy = ", or RAILTOKEN_ALLOW_EVICTION=true here"
		}
		return fmt.Errorf("worker: Redis at %s %w%s", at, err, remedy)
	}
	return nil
}

// preflightUser checks what the user of a Redis may do. Without channels all works, but slower.
func preflightUser(ctx context.Context, client redis.UniversalClient, at Redis, needs access.Needs, log *slog.Logger) error {
	user := at.Username
	if user == "" {
		user = "default"
	}
	report, err := access.Check(ctx, client, needs)
	if err != nil {
		log.WarnContext(ctx, "what the user of Redis may do is not known everywhere", "redis", at.String(), "user", user, "error", err)
	}
	if len(report.Missing) > 0 {
		return fmt.Errorf("worker: Redis at %s does not let the user %q do what tasks and locks need: run there ACL SETUSER %s %s",
			at, user, user, strings.Join(slices.Concat(report.Missing, report.Hints), " "))
	}
	if len(report.Hints) > 0 {
		log.WarnContext(ctx, "the user of Redis may not use channels: tasks that wait in their slots look for their keys, up to half a second late, "+
			"and asynq cannot be told to cancel a task", "redis", at.String(), "user", user,
			"remedy", "ACL SETUSER "+user+" "+strings.Join(report.Hints, " "))
	}
	return nil
}

// preflightNodes checks the servers of a Redlock, all at the same time. It does without some, as the locks do, but not without a majority.
func (w *Worker) preflightNodes(ctx context.Context) error {
	// The guard would keep a server that evicts from voting for ever.
	allowEviction := w.cfg.AllowEviction && w.cfg.LockGuard == locking.GuardOff
	errs, ids := make([]error, len(w.lockTest)), make([]string, len(w.lockTest))
	var wg sync.WaitGroup
	for i, client := range w.lockTest {
		at := w.cfg.LockRedis
		at.Addr, at.Nodes = at.Nodes[i], nil
		wg.Go(func() {
			errs[i] = preflight(ctx, client, at, nodesVariable+", RAILTOKEN_LOCK_REDIS_PASSWORD",
				access.Needs{Locks: true, Info: w.cfg.LockGuard != locking.GuardOff}, allowEviction, w.cfg.Logger)
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
			w.cfg.Logger.WarnContext(ctx, "a server for locks cannot be used", "error", err)
		}
	}
	if good > len(errs)/2 {
		return nil
	}
	return fmt.Errorf("worker: only %d of %d servers for locks can be used, which is no majority: %w", good, len(errs), errors.Join(errs...))
}

// runID returns the name that a server has given itself, empty when it tells none.
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

// checkInfo returns why a Redis that answers INFO with info is not fit. What it does not tell is taken to be right.
func checkInfo(info string, isCluster, allowEviction bool) error {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	var errs []error
	if v := fields["redis_version"]; v != "" && olderThan(v, 6, 2) {
		errs = append(errs, fmt.Errorf("has version %s: use 6.2 or later", v))
	}
	if fields["role"] == "slave" {
		errs = append(errs, errors.New("is a replica: give the address of its master, or use Sentinel"))
	}
	if fields["cluster_enabled"] == "1" && !isCluster {
		errs = append(errs, errors.New("is a node of a Redis Cluster: name it in RAILTOKEN_REDIS_CLUSTER (or RAILTOKEN_LOCK_REDIS_CLUSTER) instead"))
	}
	policy := fields["maxmemory_policy"]
	if limit := fields["maxmemory"]; limit != "" && limit != "0" && policy != "" && policy != "noeviction" && !allowEviction {
		errs = append(errs, fmt.Errorf("%w (maxmemory-policy %s): set maxmemory-policy noeviction there", errEvicts, policy))
	}
	return errors.Join(errs...)
}

// olderThan reports whether a version is before major.minor; false when it cannot be read.
func olderThan(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	m, err1 := strconv.Atoi(parts[0])
	n, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (m < major || m == major && n < minor)
}
