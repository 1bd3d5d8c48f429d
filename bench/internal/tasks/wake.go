package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	wakeKey     = "wake"
	waiterQueue = "waiter" // the queue of the worker whose wake-up is measured
	otherQueue  = "other"  // the queue of another worker on the same Redis
	settled     = 100 * time.Millisecond
	wakeBound   = 45 * time.Second // more than a parked task's timer: it takes that when a wake-up was swallowed
)

// Wakes measures how long after the release of its key a waiting task's handler starts: n times for a key that a task of
// the same worker held, and n times for one that a worker with connections of its own held, as another process would.
// Both workers run with the defaults but for the TaskCheckInterval; attached, they are plain asynq servers that have locks
// attached.
func Wakes(ctx context.Context, addr string, interval time.Duration, attached bool, n int) (same, other []time.Duration, err error) {
	w := &wakes{
		release: make(chan struct{}), held: make(chan struct{}, 1), refused: make(chan struct{}, 1),
		released: make(chan time.Time, 1), started: make(chan time.Time, 1), free: make(chan struct{}, 2),
	}
	if w.client, err = worker.NewClient(worker.Redis{Addr: addr}); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	start := w.start
	if attached {
		start = w.attach
	}
	var stops []func() error
	defer func() {
		close(w.release) // a holder may still run
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	for _, queue := range []string{waiterQueue, otherQueue} {
		stop, startErr := start(ctx, addr, queue, interval)
		if startErr != nil {
			return nil, nil, startErr
		}
		stops = append(stops, stop)
	}
	for range n {
		took, err := w.once(ctx, waiterQueue)
		if err != nil {
			return nil, nil, fmt.Errorf("a release in the same worker: %w", err)
		}
		same = append(same, took)
		if took, err = w.once(ctx, otherQueue); err != nil {
			return nil, nil, fmt.Errorf("a release in another worker: %w", err)
		}
		other = append(other, took)
	}
	return same, other, nil
}

// wakes is what the handlers of a holder and a waiter tell each other.
type wakes struct {
	client   *worker.Client
	release  chan struct{}  // a value lets the holder go; closed at the end
	held     chan struct{}  // the holder runs
	refused  chan struct{}  // the waiter was refused
	released chan time.Time // when the holder's handler has returned, just about
	started  chan time.Time // when the waiter's handler started
	free     chan struct{}  // a task has released its keys
}

// role is the payload of the two tasks.
type role struct {
	Holds bool `json:"holds"`
}

func oneKey(role) []string { return []string{wakeKey} }

// work is the handler of both.
func (w *wakes) work(_ context.Context, r role) error {
	if !r.Holds {
		w.started <- time.Now()
		return nil
	}
	w.held <- struct{}{}
	<-w.release
	w.released <- time.Now()
	return nil
}

// start starts a worker, and returns what ends it.
func (w *wakes) start(ctx context.Context, addr, queue string, interval time.Duration) (stop func() error, err error) {
	one, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: addr}, Queues: map[string]int{queue: 1}, TaskCheckInterval: interval,
		Observer: w.observe, ShutdownTimeout: shutdownTimeout,
	})
	if err != nil {
		return nil, err
	}
	err = worker.Handle(one, DefaultType, worker.Handler[role]{Keys: oneKey, Run: w.work})
	if err == nil {
		err = one.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, one.Shutdown())
	}
	return one.Shutdown, nil
}

// attach starts a plain asynq server that has locks attached, and returns what ends it.
func (w *wakes) attach(_ context.Context, addr, queue string, interval time.Duration) (stop func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	// As many slots as the worker has.
	cfg := asynq.Config{
		Concurrency: worker.DefaultConcurrency, Queues: map[string]int{queue: 1}, TaskCheckInterval: interval,
		ShutdownTimeout: shutdownTimeout, LogLevel: asynq.ErrorLevel,
	}
	rt, err := attach.New(client, cfg, attach.Options{Observer: w.observe})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	lock := rt.Lock(middleware.PayloadKeys(oneKey))
	asynqServer := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	err = asynqServer.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var r role
		if err := json.Unmarshal(task.Payload(), &r); err != nil {
			return err
		}
		return w.work(ctx, r)
	})))
	if err != nil {
		return nil, errors.Join(err, rt.Close(), client.Close())
	}
	return func() error {
		rt.Stop()
		asynqServer.Shutdown()
		return errors.Join(rt.Close(), client.Close())
	}, nil
}

func (w *wakes) observe(_ context.Context, e middleware.Event) {
	var to chan struct{}
	switch e.Kind {
	case middleware.Refused:
		to = w.refused
	case middleware.Released:
		to = w.free
	default:
		return
	}
	select {
	case to <- struct{}{}:
	default: // told already
	}
}

// once lets a task in the queue hold the key until another one has waited for it for a while, and returns how long that
// one took to start when the key was given back.
func (w *wakes) once(ctx context.Context, holderQueue string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wakeBound)
	defer cancel()
	if err := w.enqueue(ctx, holderQueue, role{Holds: true}); err != nil {
		return 0, err
	}
	if _, err := await(ctx, w.held); err != nil {
		return 0, err
	}
	select {
	case <-w.refused: // of the time before
	default:
	}
	if err := w.enqueue(ctx, waiterQueue, role{}); err != nil {
		return 0, err
	}
	if _, err := await(ctx, w.refused); err != nil {
		return 0, err
	}
	if _, err := await(ctx, time.After(settled)); err != nil {
		return 0, err
	}
	select {
	case w.release <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	var at [2]time.Time
	for i, event := range []<-chan time.Time{w.released, w.started} {
		var err error
		if at[i], err = await(ctx, event); err != nil {
			return 0, err
		}
	}
	for range 2 { // both have given the key back
		if _, err := await(ctx, w.free); err != nil {
			return 0, err
		}
	}
	return at[1].Sub(at[0]), nil
}

func (w *wakes) enqueue(ctx context.Context, queue string, r role) error {
	_, err := w.client.Enqueue(ctx, DefaultType, r, asynq.Queue(queue))
	return err
}

func await[T any](ctx context.Context, from <-chan T) (value T, err error) {
	select {
	case value = <-from:
		return value, nil
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}

// wakesEach is how many wake-ups of each kind a round has.
const wakesEach = 12

// wakes measures [Wakes] at two intervals, of workers and of plain asynq servers that have locks attached.
func (p part) wakes(ctx context.Context) error {
	t := p.Table("wake", "railtoken, by the TaskCheckInterval and by which worker released the key")
	kinds := []struct {
		interval time.Duration
		suffix   string
	}{{10 * time.Millisecond, ""}, {50 * time.Millisecond, ""}, {50 * time.Millisecond, ", attached"}}
	return p.Each(ctx, len(kinds), func(_, i int) error {
		at, err := server.Start(ctx, p.Dir)
		if err != nil {
			return err
		}
		defer at.Kill()
		kind := kinds[i]
		same, other, err := Wakes(ctx, at.Addr(), kind.interval, kind.suffix != "", p.share(wakesEach))
		if err == nil {
			addWakes(t, fmt.Sprintf("%v, the same worker%s", kind.interval, kind.suffix), same)
			addWakes(t, fmt.Sprintf("%v, another worker%s", kind.interval, kind.suffix), other)
		}
		return err
	})
}

// addWakes adds the wake-ups of a round.
func addWakes(t *results.Table, row string, times []time.Duration) {
	slices.Sort(times)
	t.Add(row, "p50 ms", results.PercentileIn(time.Millisecond, times, 0.5))
	t.Add(row, "p95 ms", results.PercentileIn(time.Millisecond, times, 0.95))
	t.Add(row, "longest ms", results.PercentileIn(time.Millisecond, times, 1))
}
