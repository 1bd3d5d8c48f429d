package noop

import (
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/worker"
)

// Type is the type of all tasks.
const Type = "noop"

// Enqueue adds n tasks, the i-th of which has the payload and the options that task returns. With one producer they are
// in this order.
func Enqueue(
	ctx context.Context, addr string, producers, n int, task func(i int) ([]byte, []asynq.Option),
) (err error) {
	client, err := worker.NewClient(worker.Redis{Addr: addr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < n && failed[p] == nil; i += producers {
				payload, opts := task(i)
				_, failed[p] = client.EnqueueRaw(ctx, Type, payload, nil, opts...)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
