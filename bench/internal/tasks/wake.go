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
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	wakesEach   = 12 // of each kind in a round
	wakeKey     = "wake"
	waiterQueue = "waiter" // the queue of the worker whose wake-up is measured
	otherQueue  = "other"  // the queue of another worker on the same Redis
	settled     = 100 * time.Millisecond
	wakeBound   = 45 * time.Second // more than a parked task's timer: it takes that when a wake-up was swallowed
)

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
}

// Wakes measures how long after the release of its key a waiting task's handler starts: n times for a key that a task
// of the same worker held, and n times for one that a worker with connections of its own held, as another process
// would. Both workers run with the defaults but for the TaskCheckInterval; attached, they are plain asynq servers that
// have locks attached.
func Wakes(ctx context.Context, addr string, interval time.Duration, attached bool, n int) (
	same, other []time.Duration, err error,
) {
	w := &wakes{release: make(chan struct{}), happened: map[event]chan time.Time{}}
	for _, e := range []event{held, refused, released, started, free} {
		w.happened[e] = make(chan time.Time, 2)
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
		stop, err := start(ctx, addr, queue, interval)
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, stop)
	}
	for range n {
		for queue, times := range map[string]*[]time.Duration{waiterQueue: &same, otherQueue: &other} {
			took, err := w.once(ctx, queue)
			if err != nil {
				return nil, nil, fmt.Errorf("a release in queue %s: %w", queue, err)
			}
			*times = append(*times, took)
		}
	}
	return same, other, nil
}

// event is what happens to the holder and to the waiter.
type event int

const (
	held     event = iota // the holder runs
	refused               // the waiter was refused
	released              // the holder's handler has returned, just about
	started               // the waiter's handler has started
	free                  // a task has released its keys
)

// wakes is what the handlers of a holder and a waiter tell each other.
type wakes struct {
	client   *worker.Client
	release  chan struct{} // a value lets the holder go; closed at the end
	happened map[event]chan time.Time
}

// tell notes that something happens. What has been told already is not told again.
func (w *wakes) tell(e event) {
	select {
	case w.happened[e] <- time.Now():
	default:
	}
}

// role is the payload of the two tasks.
type role struct {
	Holds bool `json:"holds"`
}

func oneKey(role) []string { return []string{wakeKey} }

// work is the handler of both.
func (w *wakes) work(_ context.Context, r role) error {
	if !r.Holds {
		w.tell(started)
		return nil
	}
	w.tell(held)
	<-w.release
	w.tell(released)
	return nil
}

func (w *wakes) observe(_ context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.Refused:
		w.tell(refused)
	case middleware.Released:
		w.tell(free)
	}
}

// start starts a worker, and returns what ends it.
func (w *wakes) start(ctx context.Context, addr, queue string, interval time.Duration) (stop func() error, err error) {
	return workers.Railtoken(ctx, worker.Config{
		Redis: worker.Redis{Addr: addr}, Queues: map[string]int{queue: 1}, TaskCheckInterval: interval, Observer: w.observe,
	}, worker.Handler[role]{Keys: oneKey, Run: w.work}, DefaultType)
}

// attach starts a plain asynq server that has locks attached, and returns what ends it.
func (w *wakes) attach(_ context.Context, addr, queue string, interval time.Duration) (stop func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	cfg := asynq.Config{
		Concurrency: worker.DefaultConcurrency, Queues: map[string]int{queue: 1}, TaskCheckInterval: interval,
	}
	handle := func(ctx context.Context, task *asynq.Task) error {
		var r role
		if err := json.Unmarshal(task.Payload(), &r); err != nil {
			return err
		}
		return w.work(ctx, r)
	}
	stopServer, err := workers.Attached(client, cfg, attach.Options{Observer: w.observe},
		func(locks *attach.Attached) asynq.Handler {
			return locks.Lock(middleware.PayloadKeys(oneKey))(asynq.HandlerFunc(handle))
		})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return func() error { return errors.Join(stopServer(), client.Close()) }, nil
}

// once lets a task in the queue hold the key until another one has waited for it for a while, and returns how long that
// one took to start when the key was given back.
func (w *wakes) once(ctx context.Context, holderQueue string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wakeBound)
	defer cancel()
	for _, events := range w.happened { // what is left of the time before
		for len(events) > 0 {
			<-events
		}
	}
	var from, to time.Time
	for _, step := range []func() error{
		func() error { return w.enqueue(ctx, holderQueue, role{Holds: true}) },
		func() error { return w.seen(ctx, held, nil) },
		func() error { return w.enqueue(ctx, waiterQueue, role{}) },
		func() error { return w.seen(ctx, refused, nil) },
		func() error { return sleep(ctx, settled) },
		func() error { return w.letGo(ctx) },
		func() error { return w.seen(ctx, released, &from) },
		func() error { return w.seen(ctx, started, &to) },
		func() error { return w.seen(ctx, free, nil) },
		func() error { return w.seen(ctx, free, nil) }, // both have given the key back
	} {
		if err := step(); err != nil {
			return 0, err
		}
	}
	return to.Sub(from), nil
}

// seen returns when something has happened, and sets when that was unless it is nil.
func (w *wakes) seen(ctx context.Context, e event, when *time.Time) error {
	select {
	case at := <-w.happened[e]:
		if when != nil {
			*when = at
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// letGo lets the holder go.
func (w *wakes) letGo(ctx context.Context) error {
	select {
	case w.release <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *wakes) enqueue(ctx context.Context, queue string, r role) error {
	_, err := w.client.Enqueue(ctx, DefaultType, r, asynq.Queue(queue))
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
