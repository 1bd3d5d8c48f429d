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

const (
	clusterMasters = 3
	clusterLanes   = 64
)

// clusterEntrant is a contestant on a Redis Cluster, or for comparison on one Redis.
type clusterEntrant struct {
	entrant

	lanes int  // in which a producer enqueues the tasks with their keys; if there are none, asynq's client enqueues them
	one   bool // on one Redis, where a producer enqueues the tasks with their keys
}

// onClusterOf are the contestants. The handler of the third one finds its keys.
var onClusterOf = []clusterEntrant{
	{entrant: entrant{"bare x 1", bare(1)}},
	{entrant: entrant{"attached, no keys", attached(attach.Options{}, (*attach.Attached).Unlocked)}},
	{entrant: entrant{"railtoken", attached(attach.Options{}, byKey)}},
	{entrant: entrant{"railtoken, 64 lanes", attached(attach.Options{Lanes: clusterLanes}, byKey)}, lanes: clusterLanes},
	{entrant: entrant{"railtoken, one Redis", attached(attach.Options{}, byKey)}, one: true},
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

// servers starts the servers of a contestant.
func (c clusterEntrant) servers(ctx context.Context, dir string) (all []*server.Server, client redis.UniversalClient, err error) {
	if c.one {
		s, err := server.Start(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		return []*server.Server{s}, redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 2 * slots, ContextTimeoutEnabled: true}), nil
	}
	all, err = server.StartCluster(ctx, dir, clusterMasters)
	if err != nil {
		return nil, nil, err
	}
	return all, server.ClusterClient(all, 2*slots), nil
}

// runOnCluster has one contestant do its tasks on new servers.
func runOnCluster(ctx context.Context, dir string, t *results.Table, c clusterEntrant, tasks int, busy bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	masters, client, err := c.servers(ctx, dir)
	if err != nil {
		return err
	}
	defer server.KillAll(masters)
	defer func() { err = errors.Join(err, client.Close()) }()
	if c.one || c.lanes > 0 {
		err = enqueueRecorded(ctx, client, tasks+slots, c.lanes)
	} else {
		err = enqueueStock(client, tasks+slots)
	}
	if err != nil {
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
	return enqueueBy(n, func(task *asynq.Task, _ string) error {
		_, err := tasks.Enqueue(task)
		return err
	})
}

// enqueueRecorded does so with a producer, which records the keys.
func enqueueRecorded(ctx context.Context, client redis.UniversalClient, n, lanes int) (err error) {
	producer, err := attach.NewProducer(client, attach.ProducerOptions{Lanes: lanes})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, producer.Close()) }()
	return enqueueBy(n, func(task *asynq.Task, order string) error {
		_, err := producer.EnqueueContext(ctx, task, attach.Keys(order))
		return err
	})
}

// enqueueBy enqueues n tasks by several producers at the same time.
func enqueueBy(n int, enqueue func(task *asynq.Task, order string) error) error {
	errs := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < n && errs[p] == nil; i += producers {
				order := fmt.Sprint("order:", i)
				errs[p] = enqueue(asynq.NewTask(emptyTask, fmt.Appendf(nil, "%q", order)), order)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
