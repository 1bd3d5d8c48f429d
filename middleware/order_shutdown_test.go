package middleware_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestAnAbortedLastAttemptKeepsItsPosition(t *testing.T) {
	t.Parallel()
	for i := range 8 { // who comes first is a race, without the promise
		name := []string{"FIFO", "strict FIFO"}[i%2]
		strategy := inTurn[name]
		t.Run(fmt.Sprint(name, " ", i/2), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				s := &script{steps: func(ctx context.Context, n, run int) error {
					if n == 1 && run == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}}
				cfg := asynq.Config{
					ShutdownTimeout: time.Second,
				}
				p := r.process(4, strategy, cfg, s.handle)
				r.queued("order:1", 1, 1, asynq.MaxRetry(0))
				r.queued("order:1", 2, 2, asynq.MaxRetry(3))
				s.sees(r, time.Minute, 1)
				<-time.After(time.Second)
				p.stop()
				r.process(4, strategy, cfg, s.handle)
				s.sees(r, time.Minute, 1, 1, 2, 3)
			})
		})
	}
}
