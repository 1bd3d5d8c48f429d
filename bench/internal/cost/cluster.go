package cost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const clusterMasters = 3

// onClusterOf are the contestants on a Redis Cluster. The handler of the last one finds its keys.
var onClusterOf = []entrant{
	{"bare x 1", bare(1)},
	{"attached, no keys", attached(attach.Options{}, (*attach.Attached).Unlocked)},
	{"railtoken", attached(attach.Options{}, byKey)},
}

// onCluster measures tasks that do nothing on a Redis Cluster, and the same while another process keeps a processor busy.
func onCluster(ctx context.Context, env *measure.Env) error {
	return env.Measure(ctx, clusterContest(env, "stock-cluster", false), clusterContest(env, "stock-cluster-busy", true))
}

func clusterContest(env *measure.Env, name string, busy bool) measure.Contest {
	tasks := env.Share(10_000, 500)
	c := measure.Contest{
		Name: name, Title: fmt.Sprintf("%d tasks that do nothing, with keys of their own, on %d slots of a process and a Redis Cluster of %d masters",
			tasks, slots, clusterMasters),
		Measure: func(ctx context.Context, t *results.Table) error {
			return env.Each(ctx, len(onClusterOf), func(round, i int) error {
				env.Report("%s, round %d: %s", name, round+1, onClusterOf[i].name)
				if err := runOnCluster(ctx, env.Dir, t, onClusterOf[i], tasks, busy); err != nil {
					return fmt.Errorf("%s: %w", onClusterOf[i].name, err)
				}
				return nil
			})
		},
	}
	for _, one := range onClusterOf {
		c.Rows = append(c.Rows, one.name)
	}
	return c
}

// runOnCluster has one contestant do its tasks on new servers.
func runOnCluster(ctx context.Context, dir string, t *results.Table, c entrant, tasks int, busy bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	masters, err := server.StartCluster(ctx, dir, clusterMasters)
	if err != nil {
		return err
	}
	defer server.KillAll(masters)
	client := server.ClusterClient(masters, 2*slots)
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := enqueueStock(client, tasks+slots); err != nil {
		return err
	}
	if busy {
		relax, err := measure.KeepBusy()
		if err != nil {
			return err
		}
		defer relax()
	}
	return c.work(ctx, client, t, tasks, masters)
}

// enqueueStock adds n tasks that do nothing with a stock client, each with a key of its own.
func enqueueStock(client redis.UniversalClient, n int) error {
	tasks := asynq.NewClientFromRedisClient(client)
	errs := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < n && errs[p] == nil; i += producers {
				_, errs[p] = tasks.Enqueue(asynq.NewTask(emptyTask, fmt.Appendf(nil, "%q", fmt.Sprint("order:", i))))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
