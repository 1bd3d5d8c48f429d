package tasks

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/hibiken/asynq"
)

// Gone is a task that was in no queue any more and had had no effect, and when it had been sent.
type Gone struct {
	Task int
	Sent Window
}

// Resend does what an outbox does: of these tasks it enqueues those anew that are gone. A program that must lose no task needs one, because
// a failover may lose the newest writes.
func (p *Producer) Resend(ctx context.Context, ledger Ledger, numbers []int) error {
	gone, err := p.Missing(ctx, ledger, numbers)
	if err != nil {
		return err
	}
	for _, n := range gone {
		p.mu.Lock()
		p.gone = append(p.gone, Gone{n, p.sent[n].Window})
		p.mu.Unlock()
		if err := p.send(ctx, p.all[n]); err != nil {
			return err
		}
	}
	return nil
}

// Missing returns those of the tasks that are in no queue any more and have had no effect.
func (p *Producer) Missing(ctx context.Context, ledger Ledger, numbers []int) (gone []int, err error) {
	for part := range slices.Chunk(numbers, 1000) {
		missing, err := ledger.missing(ctx, part)
		if err != nil {
			return nil, err
		}
		missing = slices.DeleteFunc(missing, func(n int) bool {
			_, err := p.inspect.GetTaskInfo(Kinds[p.all[n].Kind].Queue, p.all[n].id())
			return !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound)
		})
		// A task leaves its queue after its effect: one that was done meanwhile has left it.
		if missing, err = ledger.missing(ctx, missing); err != nil {
			return nil, err
		}
		gone = append(gone, missing...)
	}
	return gone, nil
}

// missing returns those of the tasks that have had no effect.
func (l Ledger) missing(ctx context.Context, numbers []int) (missing []int, err error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	fields := make([]string, len(numbers))
	for i, n := range numbers {
		fields[i] = strconv.Itoa(n)
	}
	effects, err := l.Redis.HMGet(ctx, effectsName, fields...).Result()
	if err != nil {
		return nil, err
	}
	for i, n := range numbers {
		if effects[i] == nil {
			missing = append(missing, n)
		}
	}
	return missing, nil
}
