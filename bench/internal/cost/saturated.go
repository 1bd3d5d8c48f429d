package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/child"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/process"
)

// ChildArgument is the first argument of a run of the program that must call [Serve].
const ChildArgument = "saturated-child"

const (
	// perCore is how many processes share a core of the clients. One alone would leave it idle while it waits for Redis.
	perCore        = 2
	saturatedTasks = 60_000
	stockServers   = 8 // of a process without railtoken: the figures of several in one process are the best
	// startKey gets an entry for each process when all of them are ready. Until then their tasks wait.
	startKey = "bench:start"
)

// saturating are the contestants, each of which runs in several processes.
var saturating = []entrant{
	{"bare", bare(stockServers)},
	{"sleep-retry", holding(stockServers, locks.SetNX)},
	{"attached, no keys", attached(attach.Options{}, (*attach.Attached).Unlocked)},
	{"railtoken, keys found", attached(attach.Options{}, byKey)},
	{recorded, attached(attach.Options{}, byKey)},
}

// crowdRequest asks a process to run tasks.
type crowdRequest struct {
	Name, Addr string
	Cores      []int
}

// Serve runs tasks as the request on in asks for, until in ends.
func Serve(in io.Reader, out io.Writer) error {
	return child.Serve(in, out, func(ctx context.Context, r crowdRequest, _ func(string)) (func() error, error) {
		i := slices.IndexFunc(saturating, func(e entrant) bool { return e.name == r.Name })
		if i < 0 {
			return nil, fmt.Errorf("no contestant is called %q", r.Name)
		}
		if err := server.Pin(0, r.Cores...); err != nil {
			return nil, err
		}
		runtime.GOMAXPROCS(len(r.Cores))
		client := redis.NewClient(&redis.Options{Addr: r.Addr, PoolSize: 2 * slots, ContextTimeoutEnabled: true})
		started := make(chan struct{})
		stop, err := saturating[i].start(client, func(ctx context.Context, _ *asynq.Task) error {
			select {
			case <-started:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		go func() {
			if client.BRPop(ctx, 0, startKey).Err() == nil { // the end of the client ends it
				close(started)
			}
		}()
		return func() error { return errors.Join(stop(), client.Close()) }, nil
	})
}

// saturated measures how many tasks one core of Redis carries, while the clients have all others.
func saturated(ctx context.Context, env *measure.Env) error {
	tasks := env.Share(saturatedTasks, 2000)
	c := measure.Contest{
		Name: "saturated", Title: fmt.Sprintf(
			"%d tasks that do nothing, with keys of their own; Redis has one core, and the clients have the others, with %d processes on each",
			tasks, perCore),
		Measure: func(ctx context.Context, t *results.Table) error {
			cores, err := server.Cores()
			if err == nil && len(cores) < 2 {
				err = errors.New("there is one core")
			}
			if err != nil { // a machine that cannot do this still has the other tables
				for _, row := range t.Rows {
					row.Note = fmt.Sprint("left out: ", err)
				}
				return nil
			}
			return env.Each(ctx, len(saturating), func(round, i int) error {
				env.Report("saturated, round %d: %s", round+1, saturating[i].name)
				if err := saturate(ctx, env.Dir, t, saturating[i].name, cores, tasks); err != nil {
					return fmt.Errorf("%s: %w", saturating[i].name, err)
				}
				return nil
			})
		},
	}
	for _, one := range saturating {
		c.Rows = append(c.Rows, one.name)
	}
	return env.Measure(ctx, c)
}

// saturate has the processes of one contestant do the tasks, and measures from the time at which a part of them is done
// until few are left.
func saturate(ctx context.Context, dir string, t *results.Table, name string, cores []int, tasks int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s, err := server.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := server.Pin(s.PID(), cores[0]); err != nil {
		return err
	}
	if err := enqueueEmpty(ctx, s.Addr(), tasks, name == recorded); err != nil {
		return err
	}
	others := cores[1:]
	children, err := child.StartAll(perCore*len(others), ChildArgument, crowdRequest{name, s.Addr(), others})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.EndAll(children)) }()
	for range children {
		if err := s.Probe().LPush(ctx, startKey, 1).Err(); err != nil {
			return err
		}
	}
	from, err := lookAt(ctx, s, tasks-tasks/warmUp)
	if err != nil {
		return err
	}
	until, err := lookAt(ctx, s, min(tasks/10, from.left/2))
	if err != nil {
		return err
	}
	addSaturation(t, name, from, until)
	return nil
}

// look is what was seen of a server at a time.
type look struct {
	at   time.Time
	left int           // tasks that are not acknowledged
	used time.Duration // of processors
}

// lookAt waits until at most so many tasks are left. Each look costs the server two commands.
func lookAt(ctx context.Context, s *server.Server, most int) (l look, err error) {
	err = process.Poll(ctx, nil, func() error {
		pipe := s.Probe().TxPipeline()
		pending, active := pipe.LLen(ctx, "asynq:{default}:pending"), pipe.LLen(ctx, "asynq:{default}:active")
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		l.at, l.left = time.Now(), int(pending.Val()+active.Val())
		if l.left > most {
			return fmt.Errorf("%d tasks are left", l.left)
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	l.used, err = measure.ServerTime(ctx, s)
	return l, err
}

// addSaturation adds what happened between two looks. The rate of a full core is what the use of the processor says, for
// machines whose clients cannot fill it.
func addSaturation(t *results.Table, row string, from, until look) {
	tasks, took, used := float64(from.left-until.left), until.at.Sub(from.at), until.used-from.used
	t.Add(row, "tasks/s", tasks/took.Seconds())
	t.Add(row, measure.ServerMicros, used.Seconds()*1e6/tasks)
	t.Add(row, "share of the core", used.Seconds()/took.Seconds())
	t.Add(row, "tasks/s of a full core", tasks/used.Seconds())
}
