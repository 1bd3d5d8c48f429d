package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The types of tasks.
const (
	allocateType = "warehouse:allocate" // a run, which finishes orders that are held later
	requestType  = "warehouse:request"  // a run that a person waits for
	auditType    = "order:audit"
)

// allocation is the payload of a run: its orders are the items.
type allocation struct {
	Run    string  `json:"run"`
	Orders []order `json:"orders"`
}

// failure is an order that could not be allocated.
type failure struct {
	Order     string `json:"order"`
	Reference string `json:"reference"` // the run and the place in it
	Reason    string `json:"reason"`
}

// warehouse has the worker and the producer.
type warehouse struct {
	db     *store
	pause  time.Duration
	worker *worker.Worker
	client *worker.Client
	redis  redis.UniversalClient

	mu       sync.Mutex
	inside   map[string]bool // orders that a task works on
	met      []string        // orders in which two tasks met
	reports  []failure
	finished chan string // runs and audits that have ended
}

func newWarehouse(cfg worker.Config, db *store, work time.Duration) (*warehouse, error) {
	cfg.Queues = map[string]int{"audit": 1, "allocate": 1, "request": 3}
	cfg.Logger = slog.New(slog.DiscardHandler)
	w := &warehouse{db: db, pause: work, inside: map[string]bool{}, finished: make(chan string, 1<<16)}
	var err error
	if w.worker, err = worker.New(cfg); err != nil {
		return nil, err
	}
	if w.client, err = worker.NewClient(cfg.Redis); err != nil {
		return nil, errors.Join(err, w.worker.Shutdown())
	}
	w.redis = redis.NewClient(&redis.Options{Addr: cfg.Redis.Addr, Password: string(cfg.Redis.Password)})
	if err := w.handle(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *warehouse) close() {
	_ = w.worker.Shutdown()
	_ = w.client.Close()
	_ = w.redis.Close()
}

// handle registers the handlers.
func (w *warehouse) handle() error {
	split := func(a allocation) []order { return a.Orders }
	allocate := items.Handler[allocation, order]{
		Split: split, ItemKeys: keysOf, // each order is an item, with keys and a lease of its own
		Run: w.allocate,
		Finish: func(_ context.Context, a allocation, r items.Report) error {
			w.note(failures(a, r)) // those that failed for good
			w.finished <- a.Run
			return nil
		},
	}
	request := items.Handler[allocation, order]{
		Split: split, ItemKeys: keysOf, Run: w.allocate,
		Policy: items.GoOn, Tries: 1, // a person waits for the answer
		Finish: func(context.Context, allocation, items.Report) error { return nil },
	}
	audit := worker.Handler[order]{
		Keys: func(o order) []string { return []string{middleware.Key("order", o.ID)} },
		Run: func(ctx context.Context, o order) error {
			if err := w.change(ctx, o, nil); err != nil {
				return err
			}
			w.finished <- o.ID
			return nil
		},
	}
	return errors.Join(worker.HandleItems(w.worker, allocateType, allocate),
		worker.HandleItems(w.worker, requestType, request), worker.Handle(w.worker, auditType, audit))
}

// keysOf returns the keys of an order: its own and those of the stock that it takes pieces from.
func keysOf(o order) []string {
	keys := []string{middleware.Key("order", o.ID)}
	for _, t := range o.Pieces {
		keys = append(keys, middleware.Key("stock", t.Seller))
	}
	return keys
}

// allocate takes the pieces of an order from the stock.
func (w *warehouse) allocate(ctx context.Context, o order) error { return w.change(ctx, o, o.Pieces) }

// change makes the next revision of an order, with what it takes from the stock. It reads what is there, works for a
// while, and writes what is there then: two tasks at the same order or stock would lose an update.
func (w *warehouse) change(ctx context.Context, o order, pieces []take) error {
	rows := []row{{Table: "orders", Column: "revision", ID: o.ID}}
	for _, t := range pieces {
		rows = append(rows, row{Table: "stock", Column: "pieces", ID: t.Seller})
	}
	for i, key := range keysOf(order{ID: o.ID, Pieces: pieces}) {
		var err error
		if rows[i].Token, err = fence.From(ctx, key); err != nil {
			return err
		}
	}
	if err := w.db.claim(ctx, rows); err != nil {
		return err
	}
	leave := w.enter(o.ID)
	defer leave()
	select {
	case <-time.After(w.pause):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	rows[0].Value++
	for i, t := range pieces {
		if rows[i+1].Value < t.Pieces {
			return fmt.Errorf("%w: %s has %d of %d pieces", errShort, t.Seller, rows[i+1].Value, t.Pieces)
		}
		rows[i+1].Value -= t.Pieces
	}
	task, _ := asynq.GetTaskID(ctx)
	return w.db.commit(ctx, task, items.Index(ctx), o.ID, rows)
}

// enter notes that a task works on an order, and that two do.
func (w *warehouse) enter(id string) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside[id] {
		w.met = append(w.met, id)
	}
	w.inside[id] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.inside, id)
	}
}

// failures returns the orders of a run that are not allocated.
func failures(a allocation, r items.Report) (all []failure) {
	for _, item := range r.Items {
		f := failure{Order: a.Orders[item.Index].ID, Reference: fmt.Sprintf("%s/%d", a.Run, item.Index+1), Reason: item.Err}
		if item.State == items.Refused {
			f.Reason = fmt.Sprintf("%s is held by %s", item.Key, cmp.Or(item.Holder, "another program"))
		}
		all = append(all, f)
	}
	return all
}

func (w *warehouse) note(all []failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, all...)
}

// failed returns the orders that could not be allocated, in the order of their IDs.
func (w *warehouse) failed() []failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.reports, func(a, b failure) int { return cmp.Compare(a.Order, b.Order) })
	return slices.Clone(w.reports)
}

// work enqueues the runs and the audits, and returns when all have ended.
func (w *warehouse) work(ctx context.Context, runs []allocation, orders []order, bar progress) error {
	open := 0
	for _, a := range runs {
		if _, err := w.client.Enqueue(ctx, allocateType, a, asynq.Queue("allocate")); err != nil {
			return err
		}
		open++
	}
	for i := 0; i < len(orders); i += 4 {
		if _, err := w.client.Enqueue(ctx, auditType, orders[i], asynq.Queue("audit")); err != nil {
			return err
		}
		open++
	}
	if err := w.worker.Start(ctx); err != nil {
		return err
	}
	defer bar.close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for open > 0 {
		select {
		case <-w.finished:
			open--
		case <-tick.C:
			n, err := w.db.count(ctx, `SELECT count(*) FROM ledger WHERE item >= 0`)
			if err != nil {
				return err
			}
			bar.show(n)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
