package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockwire"
)

// unseenHolder returns the task that holds a key in a store other than the lock servers, as its worker has reported, or
// nil. A report may be older than the release: a task that does not run any more holds nothing.
func (i *Inspector) unseenHolder(ctx context.Context, workers []Worker, key string) (*Holder, error) {
	var holders []*Holder
	for _, w := range workers {
		if holdings.OnRedis(w.Backend) {
			continue
		}
		for n := range w.Held {
			if h := &w.Held[n]; h.Key == key {
				holders = append(holders, &Holder{
					Backend: w.Backend, Label: lockwire.CleanLabel(h.Host + "/" + strconv.Itoa(h.PID) + "/" + h.Type + "/" + h.Task.ID),
					Since: h.Since, Fence: h.Fence, Task: h,
				})
			}
		}
	}
	if len(holders) == 0 {
		return nil, nil
	}
	states := make([]*redis.StringCmd, len(holders))
	_, err := i.opts.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, h := range holders {
			states[n] = p.HGet(ctx, line.Task(h.Task.Task).Hash(), asynqwire.StateField)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("inspect: read the states of tasks: %w", err)
	}
	var last *Holder
	for n, h := range holders {
		if states[n].Val() == string(delayqueue.StateActive) && (last == nil || h.Since.After(last.Since)) {
			last = h
		}
	}
	return last, nil
}
