package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// countFetches returns how many fetches a client sends from now on.
func countFetches(client *redis.ClusterClient) *atomic.Int32 {
	var fetches atomic.Int32
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if slices.ContainsFunc(cmd.Args(), func(arg any) bool { return strings.Contains(fmt.Sprint(arg), "}:recalled:") }) {
			fetches.Add(1)
		}
		return next(ctx, cmd)
	}))
	return &fetches
}

// A server has up to 255 queues in its lanes, whose positions are a byte each. It asks only for those that have tasks: if it went
// through all of them, in the order of strict priorities, a slow one would never come to those behind.
func TestManyQueuesHaveLanes(t *testing.T) {
	t.Parallel()
	const most = 255
	l := newLanes(t, 16)
	c := redistest.StartCluster(t, 3)
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict=", strict), func(t *testing.T) {
			client := patientCluster(t, c)
			all := map[string]int{}
			for i := range most {
				all[fmt.Sprintf("q%03d", i)] = most - i // in this order
			}
			var queues []string
			for _, i := range []int{0, 62, 63, 64, 127, 128, 200, most - 1} {
				queues = append(queues, l.Queues(fmt.Sprintf("q%03d", i))...)
			}
			fill(t, client, 1, queues)
			fetches := countFetches(client)
			var ran atomic.Int32
			_, s := inLanesOn(t, client, Options{Lanes: l}, asynq.Config{
				Queues: all, StrictPriority: strict, Concurrency: 4,
			}, func(context.Context, *asynq.Task) error {
				ran.Add(1)
				return nil
			})
			eventually(t, "all run", func() bool { return int(ran.Load()) == len(queues) })
			if n := int(fetches.Load()); n > 4*len(queues) { // those with acknowledgements included
				t.Errorf("for %d tasks there are %d fetches: queues are asked that have none", len(queues), n)
			}
			began := time.Now()
			s.Shutdown()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("an idle server with %d queues takes %v to shut down", most, took)
			}
		})
	}
}

// A paused queue has no tasks that a server may fetch, so it is not asked for them.
func TestPausedQueuesAreNotAsked(t *testing.T) {
	t.Parallel()
	const paused = 30
	l := newLanes(t, 16)
	client := patientCluster(t, redistest.StartCluster(t, 3))
	all := map[string]int{"last": 1}
	for i := range paused {
		queue := fmt.Sprintf("q%02d", i)
		all[queue] = 2 + i
		fill(t, client, 1, l.Queues(queue))
		for _, queue := range l.Queues(queue) {
			if err := client.Set(t.Context(), asynqwire.Paused(queue), 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	queues := l.Queues("last")
	fill(t, client, 1, queues)
	fetches := countFetches(client)
	var ran atomic.Int32
	inLanesOn(t, client, Options{Lanes: l}, asynq.Config{Queues: all, StrictPriority: true, Concurrency: 4}, func(context.Context, *asynq.Task) error {
		ran.Add(1)
		return nil
	})
	eventually(t, "all run", func() bool { return int(ran.Load()) == len(queues) })
	if n := int(fetches.Load()); n > 4*len(queues) {
		t.Errorf("for %d tasks there are %d fetches: paused queues are asked", len(queues), n)
	}
}
