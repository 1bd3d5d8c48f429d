package e2e_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

// itemsVariable makes the child allocate orders as the items of tasks, and audit single ones. If it is "mark", a mark
// of the item is written with each effect, so that the effect happens exactly once.
const itemsVariable = "E2E_ITEMS"

// allocation is the payload of a task that allocates stock to orders.
type allocation struct {
	Lines []line `json:"lines"`
}

// line is one order of an allocation, and the stock that it is allocated.
type line struct {
	Order string `json:"order"`
	Stock string `json:"stock"`
}

var (
	// takeScript raises the token of a stock and reads how much there is. KEYS 1 token, 2 stocks; ARGV 1 token, 2 stock.
	takeScript = redis.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') > tonumber(ARGV[1]) then
  return redis.error_reply('FENCED')
end
redis.call('SET', KEYS[1], ARGV[1])
return tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0')
`)
	// bookScript writes how much is left, and counts the effects of an item. With a mark it writes nothing if the effect
	// is there already.
	// KEYS 1 token, 2 stocks, 3 effects; ARGV 1 token, 2 stock, 3 how much is left, 4 item, 5 mark.
	bookScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('FENCED')
end
if ARGV[5] == 'mark' and redis.call('HEXISTS', KEYS[3], ARGV[4]) == 1 then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
`)
)

// handleItems registers the handlers of allocations and audits.
func handleItems(w *worker.Worker, db *redis.Client, mark string) error {
	err := worker.HandleItems(w, "allocate", items.Handler[allocation, line]{
		Split:    func(a allocation) []line { return a.Lines },
		ItemKeys: func(l line) []string { return []string{l.Order, l.Stock} },
		Run:      func(ctx context.Context, l line) error { return allocate(ctx, db, l, mark) },
		Tries:    50, // a worker that stalls is fenced off
	})
	if err != nil {
		return err
	}
	return worker.Handle(w, "audit", worker.Handler[line]{
		Keys: func(l line) []string { return []string{l.Order} },
		Run: func(ctx context.Context, l line) error {
			return inside(ctx, db, []string{l.Order}, func() error { return nil })
		},
	})
}

// allocate takes one piece from a stock: it reads what is there, and writes what is left.
func allocate(ctx context.Context, db *redis.Client, l line, mark string) error {
	lease, ok := locking.FromContext(ctx)
	if !ok {
		return errors.New("there is no lease")
	}
	token, err := lease.FenceOf(ctx, l.Stock)
	if err != nil {
		return err
	}
	id, _ := asynq.GetTaskID(ctx)
	item := fmt.Sprintf("%s/%d", id, items.Index(ctx))
	keys := []string{"fence:" + l.Stock, "stocks", "effects"}
	stock, err := takeScript.Run(ctx, db, keys[:2], token, l.Stock).Int()
	if err != nil {
		return err
	}
	return inside(ctx, db, []string{l.Order, l.Stock}, func() error {
		return bookScript.Run(ctx, db, keys, token, l.Stock, stock-1, item, mark).Err()
	})
}

// inside does something while it is noted that this process works under the keys, and counts others that do so too.
func inside(ctx context.Context, db *redis.Client, keys []string, do func() error) error {
	names, run := []string{"inside", "overlaps", "dead"}, rand.Text()
	for _, key := range keys {
		err := enterScript.Run(ctx, db, names, key, os.Getenv(nameVariable), run).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	err := do()
	for _, key := range keys {
		leaveScript.Run(context.WithoutCancel(ctx), db, names, key, os.Getenv(nameVariable), run)
	}
	return err
}
