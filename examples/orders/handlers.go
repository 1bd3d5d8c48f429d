package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// auditPayload is what an order:audit task carries.
type auditPayload struct {
	OrderID     string    `json:"order_id"`
	PurchasedAt time.Time `json:"purchased_at"`
	Status      string    `json:"status"`
	ValueCents  int64     `json:"value_cents"`
}

// allocatePayload is what an order:allocate task carries.
type allocatePayload struct {
	OrderID string `json:"order_id"`
	Parts   []part `json:"parts"`
}

// cancelPayload is what an order:cancel task carries.
type cancelPayload struct {
	OrderID string `json:"order_id"`
}

// allocations is the group of the handlers that a cancellation stops.
const allocations = "allocations"

// handlers works on all types of tasks.
type handlers struct {
	run     runID
	store   *store
	tracker *tracker
	work    span
	noLock  bool
	done    func() // called when an effect is in the ledger

	fenced atomic.Int64 // how often a claim or a write was refused
	again  atomic.Int64 // how often a task found its effect in the ledger
}

// register adds the handlers to a worker.
func (h *handlers) register(w *worker.Worker) error {
	audit := worker.Handler[auditPayload]{
		Run: h.audit, Keys: h.auditKeys,
	}
	allocate := worker.Handler[allocatePayload]{
		Run: h.allocate, Keys: h.allocateKeys, Group: allocations,
	}
	cancel := worker.Handler[cancelPayload]{
		Run: h.cancel, Keys: h.cancelKeys, Strategy: middleware.Supersede{Group: allocations},
	}
	if h.noLock {
		audit.Keys, audit.Unlocked = nil, true
		allocate.Keys, allocate.Unlocked = nil, true
		cancel.Keys, cancel.Unlocked = nil, true
	}
	return errors.Join(worker.Handle(w, auditType, audit), worker.Handle(w, allocateType, allocate), worker.Handle(w, cancelType, cancel))
}

// audit checks an order and counts a revision of it.
func (h *handlers) audit(ctx context.Context, p auditPayload) error {
	return h.apply(ctx, auditType, h.auditChanges(p))
}

// allocate reserves the items of an order from its sellers and counts a revision of the order, unless the order was cancelled.
func (h *handlers) allocate(ctx context.Context, p allocatePayload) error {
	changes := h.allocateChanges(p)
	cancelled, err := h.store.has(ctx, cancelID(p.OrderID))
	if err != nil {
		return err
	}
	if cancelled {
		changes = changes[:1]
		changes[0].Amount = 0
	}
	return h.apply(ctx, allocateType, changes)
}

// cancel notes that an order is cancelled, and counts a revision of it. An allocation that works on it stops before.
func (h *handlers) cancel(ctx context.Context, p cancelPayload) error {
	return h.apply(ctx, cancelType, h.cancelChanges(p))
}

func (h *handlers) auditChanges(p auditPayload) []change {
	return []change{{Table: ordersTable, ID: p.OrderID, Key: h.run.orderKey(p.OrderID), Amount: 1}}
}

func (h *handlers) cancelChanges(p cancelPayload) []change {
	return []change{{Table: ordersTable, ID: p.OrderID, Key: h.run.orderKey(p.OrderID), Amount: 1}}
}

func (h *handlers) allocateChanges(p allocatePayload) []change {
	changes := []change{{Table: ordersTable, ID: p.OrderID, Key: h.run.orderKey(p.OrderID), Amount: 1}}
	for _, s := range p.Parts {
		changes = append(changes, change{Table: sellersTable, ID: s.SellerID, Key: h.run.sellerKey(s.SellerID), Amount: int64(s.Items)})
	}
	return changes
}

// The keys of the tasks. They are declared here and nowhere else.
func (h *handlers) auditKeys(p auditPayload) []string       { return keysOf(h.auditChanges(p)) }
func (h *handlers) allocateKeys(p allocatePayload) []string { return keysOf(h.allocateChanges(p)) }
func (h *handlers) cancelKeys(p cancelPayload) []string     { return keysOf(h.cancelChanges(p)) }

// keysOf returns what a task must lock: the key of every row that it changes.
func keysOf(changes []change) []string {
	keys := make([]string, len(changes))
	for i, c := range changes {
		keys[i] = c.Key
	}
	return keys
}

// apply makes the changes of one task: claim the rows, work, write. It is a read-modify-write with a pause in between, which
// loses updates if two tasks do it to the same row at the same time.
func (h *handlers) apply(ctx context.Context, taskType string, changes []change) error {
	taskID, _ := asynq.GetTaskID(ctx)
	defer h.tracker.enter(taskID, taskType, keysOf(changes))()
	began := time.Now()

	lease, locked := locking.FromContext(ctx)
	if locked {
		if err := setTokens(ctx, lease, changes); err != nil {
			return err
		}
	}
	done, err := h.store.claim(ctx, taskID, changes)
	if err == nil && !done {
		err = h.work.spend(ctx)
		if err == nil {
			done, err = h.store.commit(ctx, effect{TaskID: taskID, Type: taskType, Began: began, Changes: changes})
		}
	}
	switch {
	case errors.Is(err, fence.ErrFenced):
		h.fenced.Add(1)
		return err
	case err != nil:
		return err
	case done: // an earlier run of this task finished, but asynq did not learn of it
		h.again.Add(1)
	}
	if locked {
		lease.MarkCommitted() // if the lease is lost now, the work is done
	}
	h.done()
	return nil
}

// setTokens fills in the fencing tokens of the rows' locks.
func setTokens(ctx context.Context, lease *locking.Lease, changes []change) (err error) {
	for i := range changes {
		if changes[i].Token, err = lease.FenceOf(ctx, changes[i].Key); err != nil {
			return err
		}
	}
	return nil
}

// span is how long the work of a task takes: a random time from Min to Max.
type span struct{ Min, Max time.Duration }

// spend works for a while. It stops, with the cause, when ctx ends: the lease is lost, or the process shuts down.
func (s *span) spend(ctx context.Context) error {
	timer := time.NewTimer(s.Min + rand.N(s.Max-s.Min+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
