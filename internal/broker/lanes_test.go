package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const manyLanes = 64

func newLanes(tb testing.TB, n int) lanes.Lanes {
	tb.Helper()
	l, err := lanes.New(n)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// never answers no acknowledgement.
func never(Acknowledgement) (bool, error) { return false, nil }

// someQueues are those of a server with lanes.
var someQueues = map[string]int{"orders": 6, "audit": 3, "mail": 1}

// inLanesOn runs a server with lanes until the end of the test.
func inLanesOn(t *testing.T, client redis.UniversalClient, opts Options, cfg asynq.Config, run asynq.HandlerFunc) (*Conn, *asynq.Server) {
	t.Helper()
	opts.Queues, opts.Strict, opts.Slots, opts.Tasks = cfg.Queues, cfg.StrictPriority, cfg.Concurrency, &witness{answers: never}
	opts.Interval = 50 * time.Millisecond
	cfg.TaskCheckInterval, cfg.LogLevel, cfg.DelayedTaskCheckInterval = CheckInterval, asynq.FatalLevel, time.Second
	conn := New(client, opts)
	s := asynq.NewServerFromRedisClient(conn, cfg)
	if err := s.Start(run); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sync.OnceFunc(s.Shutdown))
	return conn, s
}

// fill adds n tasks to each of some queues, with the numbers of those before them as payloads.
func fill(t *testing.T, client redis.UniversalClient, n int, queues []string, opts ...asynq.Option) {
	t.Helper()
	tasks := asynq.NewClientFromRedisClient(client)
	for i := range n {
		for _, queue := range queues {
			if _, err := tasks.Enqueue(asynq.NewTask("test", fmt.Append(nil, i)), append(opts, asynq.Queue(queue))...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// carriedOut returns how many commands masters have carried out, those that scripts have called included.
func carriedOut(t *testing.T, nodes ...*redistest.Server) (n int) {
	t.Helper()
	for _, node := range nodes {
		n += redistest.Commands(t, node)
	}
	return n
}

// patientCluster returns a client whose calls end with their contexts.
func patientCluster(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	return c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
}

func TestEachTaskCostsInLanesWhatItCostsOnOneRedis(t *testing.T) {
	t.Parallel()
	l := newLanes(t, manyLanes)
	const each, slots = 60, 32
	cost := func(client redis.UniversalClient, opts Options, queues []string, nodes ...*redistest.Server) (perTask, calls float64) {
		fill(t, client, each*manyLanes*3/len(queues), queues)
		var ran, scripts atomic.Int64
		done := make(chan struct{})
		total := int64(each * manyLanes * 3)
		hook := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "evalsha" {
				scripts.Add(1)
			}
			return next(ctx, cmd)
		})
		if c, ok := client.(*redis.ClusterClient); ok {
			c.AddHook(hook)
		} else {
			client.(*redis.Client).AddHook(hook)
		}
		from := carriedOut(t, nodes...)
		began := time.Now()
		_, s := inLanesOn(t, client, opts, asynq.Config{Queues: someQueues, Concurrency: slots}, func(context.Context, *asynq.Task) error {
			if ran.Add(1) == total {
				close(done)
			}
			return nil
		})
		redistest.Receive(t, done, patience)
		t.Log(len(nodes), time.Since(began), scripts.Load())
		s.Shutdown()
		return float64(carriedOut(t, nodes...)-from) / float64(total), float64(scripts.Load()) / float64(total)
	}
	one := redistest.Start(t)
	queues := []string{"orders", "audit", "mail"}
	single, singleCalls := cost(one.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }), Options{}, queues, one)
	c := redistest.StartCluster(t, 3)
	var all []string
	for _, queue := range queues {
		all = append(all, l.Queues(queue)[:manyLanes]...)
	}
	inLanes, calls := cost(patientCluster(t, c), Options{Lanes: l}, all, c.Nodes()...)
	t.Logf("on one Redis a task costs %.1f commands and %.3f calls, in lanes %.1f and %.3f", single, singleCalls, inLanes, calls)
	if inLanes > 1.1*single {
		t.Errorf("a task in lanes costs %.1f commands, on one Redis %.1f", inLanes, single)
	}
}

var _ = rediswire.Slot
