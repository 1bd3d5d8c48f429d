package tasks

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/worker"
)

// enqueue adds the tasks, in their order, with their places as their IDs: late ones at their times after began.
func enqueue(ctx context.Context, job Job, c Contestant, tasks []Task, began time.Time) (err error) {
	client, err := worker.NewClient(worker.Redis{Addr: job.Addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, t := range tasks {
		select {
		case <-time.After(time.Until(began.Add(t.After))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		p := payload{N: t.N, Key: t.Key}
		opts := []asynq.Option{asynq.Queue(t.Queue), asynq.TaskID(strconv.Itoa(t.N))}
		if c.Recorded {
			opts = append(opts, attach.Keys(t.Key))
		}
		if c.InOrder {
			_, err = client.EnqueueInOrder(ctx, t.Key, t.Type, p, opts...)
		} else {
			_, err = client.Enqueue(ctx, t.Type, p, opts...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
