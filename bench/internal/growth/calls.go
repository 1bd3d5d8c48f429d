package growth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/delayqueue"
)

const (
	callKey = "order-000002"
	// callWarm is how often each call is made before it is measured: the first one sends its script too.
	callWarm = 5
	callLook = 31 * time.Second // as package middleware has it for a lock of 30 s
)

// The calls of the delay queue.
var (
	callsNext    = []string{"Park", "Wake"}
	callsInOrder = []string{"Enqueue", "Turn", "LeaveLine"}
)

// calls measures single calls, while so many tasks wait.
func calls(table, title string, names []string, n int, open func(context.Context, *lineup) ([]func(context.Context) error, error)) series {
	var columns []string
	for _, name := range names {
		columns = append(columns, name+" "+took, name+" "+commands)
	}
	return series{
		Table: &report.Table{Name: table, Title: title, Columns: append(columns, took, commands, servers)}, what: "waiters",
		slices: waitSlices,
		open: func(ctx context.Context, at *server.Server, size int) (bench, error) {
			l, err := newLineup(at, names, size, n)
			if err != nil {
				return nil, err
			}
			if l.steps, err = open(ctx, l); err == nil {
				err = l.warm(ctx)
			}
			if err != nil {
				return nil, errors.Join(err, l.close())
			}
			return l, nil
		},
	}
}

// lineup is tasks that wait for a key, without any worker.
type lineup struct {
	at          *server.Server
	conn        *redis.Client
	tasks       *asynq.Client
	queue       *delayqueue.Queue
	sent        atomic.Int64
	depth, more int // tasks that wait, and that come
	names       []string
	ready       func(context.Context) error // comes before the steps and is not measured; nothing when nil
	steps       []func(context.Context) error
	n           int // calls of a slice
}

func newLineup(at *server.Server, names []string, depth, n int) (*lineup, error) {
	l := &lineup{at: at, conn: redis.NewClient(&redis.Options{Addr: at.Addr()}), names: names, depth: depth, more: callWarm + waitSlices*n, n: n}
	l.conn.AddHook(sentHook{&l.sent})
	l.tasks = asynq.NewClientFromRedisClient(l.conn)
	var err error
	if l.queue, err = delayqueue.New(l.conn, delayqueue.Options{}); err != nil {
		return nil, errors.Join(err, l.conn.Close())
	}
	return l, nil
}

func (l *lineup) close() error { return errors.Join(l.queue.Close(), l.conn.Close()) }

func (l *lineup) warm(ctx context.Context) error {
	for range callWarm {
		if err := l.prepare(ctx); err != nil {
			return err
		}
		for _, step := range l.steps {
			if err := step(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lineup) prepare(ctx context.Context) error {
	if l.ready == nil {
		return nil
	}
	return l.ready(ctx)
}

// slice makes the calls in turn, and returns the medians of their times.
func (l *lineup) slice(ctx context.Context) (map[string]float64, error) {
	times, sent := make([][]time.Duration, len(l.steps)), make([]int64, len(l.steps))
	before, err := usage.CPU(ctx, l.at.Probe())
	if err != nil {
		return nil, err
	}
	for range l.n {
		if err := l.prepare(ctx); err != nil {
			return nil, err
		}
		for i, step := range l.steps {
			first, began := l.sent.Load(), time.Now()
			if err := step(ctx); err != nil {
				return nil, err
			}
			times[i] = append(times[i], time.Since(began))
			sent[i] += l.sent.Load() - first
		}
	}
	after, err := usage.CPU(ctx, l.at.Probe())
	if err != nil {
		return nil, err
	}
	values := map[string]float64{took: 0, commands: 0, servers: usage.Cost{Units: l.n}.Micros(after - before)}
	for i, name := range l.names {
		slices.Sort(times[i])
		time, n := float64(measure.Percentile(times[i], 0.5).Nanoseconds())/1e3, float64(sent[i])/float64(l.n)
		values[name+" "+took], values[name+" "+commands] = time, n
		values[took] += time
		values[commands] += n
	}
	return values, nil
}

// fetch has a worker begin the run of a task that asynq holds back.
func (l *lineup) fetch(ctx context.Context, t delayqueue.Task) error {
	prefix := "asynq:{" + t.Queue + "}:"
	_, err := l.conn.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZRem(ctx, prefix+"scheduled", t.ID)
		pipe.LPush(ctx, prefix+"active", t.ID)
		pipe.HSet(ctx, prefix+"t:"+t.ID, "state", "active")
		pipe.ZAdd(ctx, prefix+"lease", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: t.ID})
		return nil
	})
	return err
}

// openNext parks tasks that workers have fetched, and returns the calls that park one more and wake the first.
func openNext(ctx context.Context, l *lineup) ([]func(context.Context) error, error) {
	ready := make([]delayqueue.Task, 0, l.depth+l.more)
	for range l.depth + l.more {
		info, err := l.tasks.EnqueueContext(ctx, asynq.NewTask(lifeType, nil), asynq.ProcessIn(time.Hour))
		if err != nil {
			return nil, err
		}
		ready = append(ready, delayqueue.Task{Queue: info.Queue, ID: info.ID})
	}
	park := func(ctx context.Context) error {
		opts := delayqueue.ParkOptions{Look: callLook}
		_, err := l.queue.Park(ctx, ready[0], callKey, opts)
		ready = ready[1:]
		return err
	}
	for range l.depth {
		if err := errors.Join(l.fetch(ctx, ready[0]), park(ctx)); err != nil {
			return nil, err
		}
	}
	l.ready = func(ctx context.Context) error { return l.fetch(ctx, ready[0]) }
	wake := func(ctx context.Context) error {
		woken, err := l.queue.Wake(ctx, callKey, delayqueue.WakeOptions{})
		if err == nil && (len(woken.Tasks) != 1 || woken.Left != l.depth) {
			err = fmt.Errorf("%d were woken, and %d are left of %d", len(woken.Tasks), woken.Left, l.depth+1)
		}
		return err
	}
	return []func(context.Context) error{park, wake}, nil
}

// openOrdered enqueues tasks in line, and returns the calls that enqueue one more, ask for its turn, and let the first leave.
func openOrdered(ctx context.Context, l *lineup) ([]func(context.Context) error, error) {
	var all []delayqueue.Task
	enqueue := func(ctx context.Context) error {
		info, err := l.queue.Enqueue(ctx, callKey, lifeType, nil, nil)
		if err == nil {
			all = append(all, delayqueue.Task{Queue: info.Queue, ID: info.ID})
		}
		return err
	}
	for range l.depth {
		if err := enqueue(ctx); err != nil {
			return nil, err
		}
	}
	turn := func(ctx context.Context) error {
		at, err := l.queue.Join(ctx, all[len(all)-1], callKey, delayqueue.JoinOptions{Begins: true})
		if err == nil && at.Ahead != l.depth {
			err = fmt.Errorf("%d stand before it of %d", at.Ahead, l.depth)
		}
		return err
	}
	leave := func(ctx context.Context) error {
		first := all[0]
		all = all[1:]
		left, err := l.queue.Remove(ctx, first, callKey)
		if err == nil && (len(left.Next) == 0 || left.Next[0] != all[0]) {
			err = fmt.Errorf("the next are %v", left.Next)
		}
		return err
	}
	return []func(context.Context) error{enqueue, turn, leave}, nil
}

// sentHook counts the commands that a client sends.
type sentHook struct{ n *atomic.Int64 }

// DialHook changes nothing.
func (h sentHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts one command.
func (h sentHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts those of a pipeline.
func (h sentHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}
