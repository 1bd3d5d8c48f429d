package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanemove"
	"github.com/railtoken/railtoken/internal/lanes"
)

const (
	// ours is what the names of all Redis keys of railtoken begin with.
	ours = "railtoken:"
	// sweepStep is how many Redis keys one call looks at, or deletes: Redis does nothing else meanwhile.
	sweepStep = 1000
)

func (a *app) uninstallCommand() *cobra.Command {
	yes, dry := false, false
	c := &cobra.Command{
		Use: "uninstall", Short: "delete what railtoken has stored, after its last worker has stopped", Args: cobra.NoArgs,
		SuggestFor: []string{"purge", "cleanup", "clean", "remove", "reset"},
		Long: "uninstall lists the Redis keys of railtoken by kind, on the Redis of the tasks and on the lock servers, and deletes them.\n" +
			"It asks first, unless --yes is given. It refuses while workers report or locks are held.\n\n" +
			"Keys of asynq are not touched. Waiting tasks stay in asynq's retry set and run when their timers fire. The fields\n" +
			"railtoken:... in asynq's tasks stay, too: asynq ignores them, and they go with the tasks. Locks whose names a program\n" +
			"has chosen itself (RedisKey) are not found; they end by themselves.",
		RunE: a.doLong(func(ctx context.Context, _ []string) error { return a.uninstall(ctx, yes, dry) }),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&dry, "dry-run", false, "only list")
	return c
}

func (a *app) uninstall(ctx context.Context, yes, dry bool) error {
	if err := a.unused(ctx); err != nil {
		return err
	}
	if err := a.moved(ctx); err != nil {
		return err
	}
	found, err := a.sweep(ctx, nil)
	if err != nil {
		return err
	}
	all := 0
	for _, n := range found {
		all += n
	}
	if !a.json {
		rows := make([][]string, 0, len(found))
		for _, kind := range slices.Sorted(maps.Keys(found)) {
			rows = append(rows, []string{kind, strconv.Itoa(found[kind])})
		}
		a.out.table("railtoken has stored nothing here", "KIND\tREDIS KEYS", rows)
	}
	held := found[heldLock]
	if held > 0 && !dry {
		return fmt.Errorf("%d locks are held: stop the programs that lock, and wait until the locks of killed ones have ended, 30 s by default", held)
	}
	deleted := 0
	if all > 0 && !dry {
		if err := a.confirm(ctx, fmt.Sprintf("Delete these %d Redis keys?", all), yes); err != nil {
			return err
		}
		gone, err := a.sweep(ctx, func(ctx context.Context, client redis.UniversalClient, names []string) error {
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range names { // one by one, because those of a Cluster are in different slots
					p.Unlink(ctx, name)
				}
				return nil
			})
			return err
		})
		for _, n := range gone {
			deleted += n
		}
		if err != nil {
			return fmt.Errorf("%d Redis keys were deleted, then: %w: repeat the command", deleted, err)
		}
	}
	if a.json {
		return a.out.json(map[string]any{"found": found, "deleted": deleted})
	}
	if deleted > 0 {
		a.out.printf("%d Redis keys are deleted. Waiting tasks run when their timers fire; to run them now, use RunAllRetryTasks of asynq's Inspector\n", deleted)
	}
	return nil
}

// unused returns an error that names the workers that have reported within 15 s.
func (a *app) unused(ctx context.Context) error {
	workers, err := a.conn.inspector.Workers(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range workers {
		names = append(names, fmt.Sprintf("%s/%d", w.Host, w.PID))
	}
	if len(names) == 0 {
		return nil
	}
	return errors.New("workers use railtoken: stop them first, and wait 15 s after one was killed: " + strings.Join(names, ", "))
}

// moved returns an error if a move into lanes has taken tasks that only the next move brings back.
func (a *app) moved(ctx context.Context) error {
	if a.conn.inspector.Lanes() == 0 {
		return nil
	}
	queues, err := a.conn.tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return err
	}
	for _, queue := range queues {
		if lanes.Base(queue) != queue {
			continue
		}
		if n, err := lanemove.Unfinished(ctx, a.conn.tasks, queue); err != nil || n > 0 {
			return cmp.Or(err, fmt.Errorf("a move of queue %s into lanes has not ended, and %d tasks would be lost: repeat railtoken lanes move", queue, n))
		}
	}
	return nil
}

// sweep counts railtoken's Redis keys by kind, on every server, and calls do with each page of them on the client of their server.
func (a *app) sweep(ctx context.Context, do func(context.Context, redis.UniversalClient, []string) error) (map[string]int, error) {
	clients := []redis.UniversalClient{a.conn.tasks}
	if a.conn.locks != nil {
		clients = append(clients, a.conn.locks)
	}
	for _, s := range a.conn.servers {
		clients = append(clients, s)
	}
	found, mu := map[string]int{}, sync.Mutex{}
	for _, client := range clients {
		scan := func(ctx context.Context, on redis.UniversalClient) error {
			var cursor uint64
			for {
				page, next, err := on.Scan(ctx, cursor, ours+"*", sweepStep).Result()
				if err != nil {
					return err
				}
				page = slices.DeleteFunc(page, func(name string) bool { return !strings.HasPrefix(name, ours) })
				if do != nil && len(page) > 0 {
					if err := do(ctx, client, page); err != nil { // of a Cluster, in case a slot has moved
						return err
					}
				}
				mu.Lock()
				for _, name := range page {
					found[kindOf(name)]++
				}
				mu.Unlock()
				if cursor = next; cursor == 0 {
					return nil
				}
			}
		}
		var err error
		if cluster, ok := client.(*redis.ClusterClient); ok {
			err = cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return scan(ctx, master) })
		} else {
			err = scan(ctx, client)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// heldLock is the kind of the locks that are held.
const heldLock = "held lock"

// kindOf returns what a Redis key of railtoken is.
func kindOf(name string) string {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(name, ours), ":")
	switch {
	case kind == "lock" && strings.HasSuffix(rest, "}"):
		return heldLock
	case kind == "lock" && strings.HasSuffix(rest, "}:fence"):
		return "fence counter"
	case kind == "lock":
		return "mark of a lock"
	case kind == "fence":
		return "token of a data key"
	case slices.Contains([]string{
		"waiters", "sequence", "collect", "parked", "worker", "workers", "history", "watched", "lock-store", "audit", "fired", "cancelled", "recovery", "latest", "ends", "preflight", "lanes", "move",
	}, kind):
		return kind
	}
	return "other"
}
