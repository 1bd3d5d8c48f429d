package line

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/subscription"
)

// New returns an Engine on the Redis where asynq keeps its tasks. Close the Engine before the client. With a client of
// a Redis Cluster a call takes several round trips instead of one; everything else works as on one node. New refuses a
// Cluster client that reads from replicas, a ring, whose nodes know nothing of each other, and a client that is nil.
func New(client redis.UniversalClient, opts Options) (*Engine, error) {
	if IsNil(client) {
		return nil, errors.New("delayqueue: the client is nil: give a client of the Redis where asynq keeps its tasks")
	}
	cluster, ok := client.(*redis.ClusterClient)
	if ok && cluster.Options().ReadOnly {
		return nil, errors.New("delayqueue: the client reads from the replicas of the cluster, which are behind: " +
			"use one without ReadOnly, RouteByLatency and RouteRandomly")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, errors.New("delayqueue: tasks cannot be parked on a ring of Redis nodes: " +
			"use a standalone or Sentinel-managed Redis or a Redis Cluster for asynq")
	}
	// Any other client may have a Cluster behind it, where the scripts for one node would lose tasks.
	_, oneNode := client.(*redis.Client)
	e := &Engine{
		client: client, log: opts.Logger, woken: opts.Woken, repair: opts.Repaired,
		lastWakes: map[string]*lastWake{}, failed: failedHeads{}, spread: !oneNode, names: Names{opts.Lanes, opts.Index},
		parkers: parkers{names: Names{Lanes: opts.Lanes}},
		inspect: asynq.NewInspectorFromRedisClient(client), messages: subscription.New(client),
	}
	e.agreement = lanes.AgreementOn(client, opts.Lanes)
	e.waiters = ends.NewWaiters(client, e.messages)
	e.tasks = asynq.NewClientFromRedisClient(broker.NewEnqueuer(client, e.answer))
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.closing, e.cancel = context.WithCancel(context.Background())
	e.parking, e.giveUp = context.WithCancel(context.Background())
	return e, nil
}

// Close waits up to 1 s for wakes under way, and up to 8 s, as long as asynq's own shutdown, for tasks that are to be
// parked once Redis can be reached again. A task that was not woken runs when its timer ends. One that could not be
// parked is logged, and asynq recovers it: as failed, and archived when it has no retry left.
func (e *Engine) Close() error {
	e.CloseBy(time.Now().Add(CloseLimit))
	return nil
}

// CloseBy does what Close does, until a deadline.
func (e *Engine) CloseBy(deadline time.Time) {
	_ = e.messages.Close()
	e.releaseAll()
	e.waiters.Close()
	e.mu.Lock()
	if !e.closed && e.looks != nil {
		close(e.looks)
	}
	e.closed = true
	for _, f := range e.lastWakes {
		f.timer.Stop()
	}
	e.mu.Unlock()
	timer := time.AfterFunc(time.Second, e.cancel)
	defer timer.Stop()
	last := time.AfterFunc(time.Until(deadline), e.giveUp)
	defer last.Stop()
	done := make(chan struct{})
	go func() {
		e.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-e.parking.Done(): // a client without ContextTimeoutEnabled does not notice it
		e.givenUp()
	}
	e.cancel()
	e.giveUp()
}
