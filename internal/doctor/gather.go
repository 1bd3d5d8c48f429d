package doctor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// gaps are checks that could not be made.
type gaps struct {
	mu  sync.Mutex
	all []Unchecked
}

func (g *gaps) add(check, where string, err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, Unchecked{check, where, err.Error()})
}

// without returns the gaps, without those of skipped checks.
func (g *gaps) without(skip []string) []Unchecked {
	return slices.DeleteFunc(g.all, func(u Unchecked) bool { return slices.Contains(skip, u.Check) })
}

// gather collects the facts. What cannot be had is missing from them and in the gaps.
func gather(ctx context.Context, src Sources) (Facts, *gaps) {
	f, missed := Facts{At: time.Now(), Settings: src.Settings}, &gaps{}
	src.Progress("asking the servers")
	f.Servers = gatherServers(ctx, src, missed)
	if slices.ContainsFunc(f.Servers, func(s Server) bool { return s.Tasks && s.Err != nil }) {
		return f, missed
	}
	if src.Inspector != nil {
		f.lines = (*line.Engine)(src.Inspector.Queue()).Names()
		src.Progress("reading the reports of the workers")
		missed.add("workers", "the Redis of the tasks", f.gatherReports(ctx, src.Inspector))
		names, err := f.placeless()
		missed.add("workers", names, err)
	}
	src.Progress("reading the queues")
	missed.add("unserved", "the Redis of the tasks", f.gatherQueues(ctx, src.Tasks))
	src.Progress("reading waiting tasks")
	missed.add("orphans", "the Redis of the tasks", f.gatherWaits(ctx, src.Tasks))
	if src.Inspector != nil {
		missed.add("held", "the Redis of the locks", f.gatherHeld(ctx, src.Inspector))
		missed.add("crowd", "the Redis of the tasks", f.gatherPaces(ctx, src.Tasks))
	}
	src.Progress("reading active tasks")
	missed.add("no-handler", "the Redis of the tasks", f.gatherFailures(ctx, src.Tasks))
	missed.add("database", "the Redis of the tasks", f.gatherDatabases(ctx, src.Tasks))
	missed.add("stuck", "the Redis of the tasks", f.gatherActive(ctx, src.Tasks))
	missed.add("asynq-scripts", "the Redis of the tasks", f.gatherScripts(ctx, src.Tasks))
	return f, missed
}
