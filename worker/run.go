package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// Run starts the worker, works until ctx ends, and shuts down. It returns nil after an orderly shutdown, and an error
// if the worker could not start, for example because Redis cannot be reached, is too old, or may evict tasks.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return unlessInterrupted(ctx, err)
	}
	<-ctx.Done()
	return w.Shutdown()
}

// unlessInterrupted returns nil instead of an error that was caused by the end of ctx, because the worker was told to
// stop before it had started.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Start checks Redis and begins to work on tasks. ctx limits only the check. If Redis is unsuitable, Start closes the
// worker and returns an error.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != fresh:
		return errors.New("worker: it has been started already, or is closed: make a new one")
	case len(w.handlers) == 0 && !w.matched:
		return errors.New("worker: no handler is registered: call worker.Handle before")
	}
	w.handler = asynq.HandlerFunc(w.process)
	for _, m := range slices.Backward(w.around) {
		w.handler = m(w.handler)
	}
	if err := w.start(ctx); err != nil {
		return errors.Join(err, w.end())
	}
	w.state = started
	w.cfg.Logger.InfoContext(ctx, "worker started", "redis", w.cfg.Redis.String(), "locks", w.lockAt().String(),
		"queues", w.queues(), "concurrency", w.cfg.Concurrency)
	return nil
}

func (w *Worker) start(ctx context.Context) error {
	if err := w.preflight(ctx); err != nil {
		return err
	}
	server := asynq.NewServerFromRedisClient(w.attached.Client(), w.attached.Config())
	if err := server.Start(w); err != nil {
		return fmt.Errorf("worker: start asynq's server: %w", err)
	}
	w.server = server
	return nil
}

// queues returns the queues that asynq works on: ours, and those in which strategies of handlers let tasks wait.
func (w *Worker) queues() map[string]int { return w.attached.Config().Queues }

// Shutdown stops the worker. It starts no new task and parks the tasks that wait in their slots. Running tasks may
// continue for ShutdownTimeout; then they are cancelled and returned to their queues. Shutdown returns when everything
// is closed. While Redis does not answer, that takes up to 8 s longer than asynq's own shutdown. A second call does
// nothing.
func (w *Worker) Shutdown() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == closed {
		return nil
	}
	if w.state == started {
		w.cfg.Logger.Info("worker shuts down", "timeout", w.cfg.ShutdownTimeout)
	}
	return w.end()
}

// end closes everything. The caller holds the mutex.
func (w *Worker) end() error {
	w.state = closed
	w.attached.Stop()
	if w.server != nil {
		w.server.Shutdown()
	}
	return w.close()
}

// close closes what New has created, users before what they use. It is called after asynq's servers have shut down,
// because asynq panics if their client is closed earlier.
func (w *Worker) close() error {
	deadline := time.Now().Add(line.CloseLimit) // also of what attached closes
	return errors.Join(w.attached.Close(), w.locker.CloseBy(deadline), w.closeClients())
}

func (w *Worker) closeClients() error {
	var errs []error
	if w.made.tasks {
		errs = append(errs, w.tasks.Close())
	}
	if w.made.locks {
		errs = append(errs, w.lockConn.Close())
	}
	for _, client := range w.lockTest {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}
