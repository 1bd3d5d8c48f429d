package middleware_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// stall keeps our own calls to Redis waiting until a time, as a server that hangs does; asynq's go on.
type stall struct{ until atomic.Pointer[time.Time] }

func (s *stall) wait(cmd redis.Cmder) {
	if until := s.until.Load(); until != nil && strings.Contains(fmt.Sprint(cmd.Args()...), "railtoken:") {
		time.Sleep(time.Until(*until)) // virtual
	}
}

func (s *stall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.wait(cmd)
		return next(ctx, cmd)
	}
}

func (s *stall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.wait(cmd)
		}
		return next(ctx, cmds)
	}
}

// A lease that ends between the return and the release was good for all that the handler did.
func TestACleanReturnUnderAValidLeaseIsASuccess(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		var hangs stall
		r.client.AddHook(&hangs)
		opts := r.options(middleware.Requeue{Order: middleware.FIFO})
		opts.TTL = locking.MinTTL
		var runs atomic.Int64
		r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
			if runs.Add(1) == 1 {
				until := time.Now().Add(4 * time.Second)
				hangs.until.Store(&until)
			}
			return nil
		})
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		r.gone(task)
		if n := runs.Load(); n != 1 {
			r.Errorf("%d runs of a task whose first one returned cleanly", n)
		}
	})
}
