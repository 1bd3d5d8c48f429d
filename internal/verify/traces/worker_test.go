package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
)

// taskType is the type of all tasks, and queue their queue.
const (
	taskType = "trace"
	queue    = "traced"
)

// job is a task, and its payload.
type job struct {
	ID      string
	Keys    []string
	Holds   time.Duration // how long its handler works
	Fails   int           // how many runs fail
	Retries int
	Warm    bool // it comes before the recording, so that a worker learns that its handler uses the recorded keys
}

func keysOf(_ context.Context, task *asynq.Task) ([]string, error) {
	var j job
	err := json.Unmarshal(task.Payload(), &j)
	return j.Keys, err
}

// errTold is the failure of a handler that is told to fail.
var errTold = errors.New("it was told to fail")

// worker is a server with connections of its own.
type worker struct {
	*play
	number   int
	tap      *tap
	client   *redis.Client
	attached *attach.Attached
	server   *asynq.Server
	warm     chan struct{} // a value for each warm task
}

// work starts a worker.
func (p *play) work(number int) *worker {
	p.Helper()
	w := &worker{play: p, number: number, tap: newTap(), warm: make(chan struct{}, 100)}
	w.client = p.redis.Client(p.T, func(o *redis.Options) { o.Dialer = p.recorder.dial(number); o.ContextTimeoutEnabled = true })
	w.client.AddHook(w.tap)
	var err error
	w.attached, err = attach.New(w.client, asynq.Config{
		Concurrency: slots, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: time.Second / 4,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	}, attach.Options{Strategy: p.strategy, DisableReports: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.Fatal(err)
	}
	w.server = asynq.NewServerFromRedisClient(w.attached.Client(), w.attached.Config())
	if err := w.server.Start(w.attached.Lock(keysOf)(asynq.HandlerFunc(w.handle))); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		w.stop()
		_ = w.client.Close()
	})
	p.workers = append(p.workers, w)
	return w
}

// stop shuts a worker down. It may be called again.
func (w *worker) stop() {
	if w.server == nil {
		return
	}
	w.server.Shutdown()
	w.server = nil
	if err := w.attached.Close(); err != nil && !w.tap.isDead() {
		w.Error(err)
	}
}

// handle is the handler of all tasks.
func (w *worker) handle(ctx context.Context, task *asynq.Task) error {
	var j job
	if err := json.Unmarshal(task.Payload(), &j); err != nil {
		return err
	}
	if j.Warm {
		w.warm <- struct{}{}
		select {
		case <-w.warmed:
		case <-ctx.Done():
		}
		return nil
	}
	if err := w.note(starts, j.ID); err != nil {
		return err
	}
	this := w.next(j.ID)
	w.started <- began{this, w}
	if hold := w.holds[this]; hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		case <-w.tap.dead:
		}
	}
	select {
	case <-time.After(j.Holds): // it works
	case <-ctx.Done():
	case <-w.tap.dead:
	}
	if err := w.note(returns, j.ID); err != nil {
		return err
	}
	if this.nth <= j.Fails {
		return errTold
	}
	return nil
}

// note marks what a handler does.
func (w *worker) note(k kind, id string) error {
	w.tap.pass.RLock()
	defer w.tap.pass.RUnlock()
	if w.tap.isDead() {
		return errDead
	}
	return w.recorder.mark(fmt.Sprintf("%v %d %s", k, w.number, id))
}
