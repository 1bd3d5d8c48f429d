package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/line"
)

// readRunning finds out which task holds a key, and whether its worker has been heard of.
func (i *Inspector) readRunning(ctx context.Context, h *Holder) error {
	var tasks []delayqueue.Task
	if h.Task != nil {
		h.Running = h.Task.Task
		tasks = []delayqueue.Task{h.Running}
	} else if id := h.Label[strings.LastIndexByte(h.Label, '/')+1:]; id != "" {
		queues, err := i.opts.Tasks.SMembers(ctx, asynqwire.Queues).Result()
		if err != nil {
			return fmt.Errorf("inspect: list the queues: %w", err)
		}
		for _, queue := range queues {
			tasks = append(tasks, delayqueue.Task{Queue: queue, ID: id})
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	states, leases := make([]*redis.StringCmd, len(tasks)), make([]*redis.FloatCmd, len(tasks))
	_, err := i.opts.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, t := range tasks {
			at := line.Task(t)
			states[n], leases[n] = p.HGet(ctx, at.Hash(), asynqwire.StateField), p.ZScore(ctx, asynqwire.Lease(at.Queue), t.ID)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("inspect: read the task of a holder: %w", err)
	}
	for n, t := range tasks {
		if states[n].Val() != string(delayqueue.StateActive) {
			continue
		}
		h.Running = t
		var lease time.Time
		if leases[n].Err() == nil {
			lease = time.Unix(int64(leases[n].Val()), 0)
		}
		if silent := asynqwire.Silence(lease, time.Now()); silent > asynqwire.SilentAfter {
			h.Silent = silent
		}
		return nil
	}
	return nil
}
