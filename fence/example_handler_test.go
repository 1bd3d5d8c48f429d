package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/locking"
)

// ship is a handler for middleware.Lock: it subtracts one piece from the stock, once for each task.
type ship struct {
	db    *sql.DB
	guard fence.SQL
}

// ProcessTask reads and writes in one transaction, which no earlier holder of the key can disturb.
func (s ship) ProcessTask(ctx context.Context, task *asynq.Task) error {
	token, err := fence.From(ctx, "article:7")
	if err != nil {
		return err
	}
	err = s.guard.Do(ctx, s.db, []fence.Token{token}, func(tx *sql.Tx) error {
		if err := s.guard.Once(ctx, tx, token, task.ResultWriter().TaskID()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE article = 7")
		return err
	})
	if err != nil && !errors.Is(err, fence.ErrApplied) {
		return err // also ErrFenced: the task runs again, under a new lease
	}
	if lease, ok := locking.FromContext(ctx); ok {
		lease.MarkCommitted() // the work is done, even if the lease is lost from now on
	}
	return nil
}

// Without a lock around it, the handler writes nothing.
func Example() {
	err := ship{guard: fence.SQL{Dialect: fence.Postgres}}.ProcessTask(context.Background(), asynq.NewTask("ship", nil))
	fmt.Println(errors.Is(err, fence.ErrNoToken))
	// Output: true
}
