package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware"
)

// The defaults of a [Handler].
const (
	defaultParallel = 8
	defaultTries    = 5
	defaultMaxItems = 10_000
)

// Policy says what happens to items whose keys are held by others.
type Policy int

// The policies.
const (
	// FinishLater parks the task once nothing else is left to do. The first release of a key that it waits for wakes it,
	// and it goes on with the refused items. Items that have failed wait for asynq's retry.
	FinishLater Policy = iota
	// GoOn ends the run without them: they are reported as refused. Without a Finish that returns nil, the task is then
	// archived.
	GoOn
	// Whole locks the keys of all items together before the first one runs, or none of them: the handler's Strategy
	// decides what happens in a conflict. The total number of keys is limited by MaxKeys, and the first failure ends the
	// run.
	Whole
)

// String returns the policy in words.
func (p Policy) String() string {
	if p < FinishLater || p > Whole {
		return fmt.Sprintf("Policy(%d)", int(p))
	}
	return [...]string{"finish later", "go on", "whole"}[p]
}

// Handler says how the tasks of one type are divided into items, and how each item is worked on. T is the payload of a
// task and I an item. Split, ItemKeys and Run must be set; every other field has a default.
type Handler[T, I any] struct {
	// Split returns the items of a payload. It must always return the same items in the same order, because they are
	// identified by their index. A task with no items, or with more than MaxItems, is archived.
	Split func(payload T) []I

	// ItemKeys returns the business keys of an item, which are locked together or not at all: make them with
	// [middleware.Key]. If it returns no key, an empty one or one of Keys, the task is archived.
	ItemKeys func(item I) []string

	// Run works on one item. Its context carries the item's lease (locking.FromContext) and [Index], and ends, with a
	// cause, when the lease is lost. An error that matches asynq.SkipRetry uses up all tries. A panic counts as an error.
	Run func(ctx context.Context, item I) error

	// Keys returns business keys that are locked for the whole run, before the first item; the handler's Strategy decides
	// what happens in a conflict. nil locks none.
	Keys func(payload T) []string

	// Finish, if not nil, is called when no item is left to run. What it returns is the outcome of the task: nil
	// completes it, and Report.Err archives it if items have failed. When it fails the task is retried and Finish is
	// called again. When Finish is nil, Report.Err is the outcome.
	Finish func(ctx context.Context, payload T, r Report) error

	// Decode reads the payload of a task; from JSON when nil. If it fails, the task is archived.
	Decode func(task *asynq.Task) (T, error)

	// Policy says what happens to items whose keys are held by others; [FinishLater] when zero.
	Policy Policy
	// Parallel is how many items of a task run at the same time; 8 when zero.
	Parallel int
	// Sequential runs one item at a time, in the order of their indexes, and stops at the first one that fails or is
	// refused. Parallel must then be 0 or 1.
	Sequential bool
	// Tries is how often a failing item runs; 5 when zero. Each try but the last costs a retry of the task, and a task
	// that has no retries left no longer tries its items.
	Tries int
	// MaxItems is the maximum number of items of a task; 10 000 when zero.
	MaxItems int

	// Strategy decides what happens in a conflict over Keys, or over all keys with the policy Whole. Its Requeue limits
	// how long a task waits for items; a task whose Strategy has none, such as FailFast, waits for items without limits.
	// The default is that of attach.Options. Its order must be BestEffort.
	Strategy middleware.Strategy
	// TTL and MaxHold apply to each lock; the values of attach.Options when zero.
	TTL, MaxHold time.Duration
	// Group and OnSuperseded are as in attach.LockOptions. A task that is superseded, for one of Keys or of an item that runs, stops: no
	// other item begins, and Finish is not called.
	Group        string
	OnSuperseded middleware.Outcome
}

// Validate returns an error that lists all problems with the handler, or nil.
func (h Handler[T, I]) Validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{{"Split", h.Split != nil}, {"ItemKeys", h.ItemKeys != nil}, {"Run", h.Run != nil}} {
		if !f.set {
			errs = append(errs, fmt.Errorf("items: %s is not set", f.name))
		}
	}
	if h.Policy < FinishLater || h.Policy > Whole {
		errs = append(errs, fmt.Errorf("items: Policy is %v: use FinishLater, GoOn or Whole", h.Policy))
	}
	if h.Parallel < 0 || h.Tries < 0 || h.MaxItems < 0 {
		errs = append(errs, fmt.Errorf("items: Parallel is %d, Tries %d and MaxItems %d: they cannot be negative",
			h.Parallel, h.Tries, h.MaxItems))
	}
	if h.Sequential && h.Parallel > 1 {
		errs = append(errs, fmt.Errorf("items: Sequential is set and Parallel is %d: choose one", h.Parallel))
	}
	if requeue, ok := middleware.RequeueOf(h.Strategy); ok && requeue.Order != middleware.BestEffort {
		errs = append(errs, fmt.Errorf(
			"items: Strategy keeps the order %v: a task of items cannot run in order, use BestEffort", requeue.Order))
	}
	if _, supersedes := h.Strategy.(middleware.Supersede); supersedes && h.Policy != Whole && h.Keys == nil {
		errs = append(errs, errors.New("items: Strategy is Supersede, which is about Keys, and there are none: tasks wait for the keys of "+
			"their items. Set Keys, or the policy Whole"))
	}
	return errors.Join(errs...)
}

// New returns the asynq handler for tasks of items: register it as it is, for example with asynq.ServeMux.Handle. It
// reports all problems with h in one error. Package worker has HandleItems for this.
func New[T, I any](locks *attach.Attached, h Handler[T, I]) (asynq.Handler, error) {
	err := h.Validate()
	if locks == nil {
		err = errors.Join(errors.New("items: locks is nil: give the result of attach.New"), err)
	}
	if err != nil {
		return nil, err
	}
	h = h.withDefaults()
	lock, err := locks.LockWith(attach.LockOptions{
		Key: h.divide, Strategy: h.Strategy, TTL: h.TTL, MaxHold: h.MaxHold, Group: h.Group, OnSuperseded: h.OnSuperseded,
	})
	if err != nil {
		return nil, err
	}
	client := (*line.Engine)(locks.Queue()).Client()
	average := new(atomic.Int64)
	locked := lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		d, _ := ctx.Value(dividedKey{}).(*divided[T, I])
		t, err := line.TaskOf(ctx)
		if err != nil {
			return err
		}
		c := &conductor{
			plan: h.plan(d), run: d.items.Run, log: d.items.Run.Logger(), store: newStore(client, t, d.items.Of),
			average: average,
		}
		return c.process(ctx, task)
	}))
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return locked.ProcessTask(context.WithValue(ctx, dividedKey{}, new(divided[T, I])), task)
	}), nil
}

func (h Handler[T, I]) withDefaults() Handler[T, I] {
	for _, d := range []struct {
		value *int
		zero  int
	}{{&h.Parallel, defaultParallel}, {&h.Tries, defaultTries}, {&h.MaxItems, defaultMaxItems}} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if h.Sequential {
		h.Parallel = 1
	}
	return h
}

// dividedKey is the context key of a pointer to what a task was divided into: it is divided once, for its keys, and the
// handler finds it there.
type dividedKey struct{}

// divided is a task that was divided into items.
type divided[T, I any] struct {
	payload T
	parts   []I
	items   *taskrun.ItemsError
}

// divide is the key function of the tasks. Its error is an [taskrun.ItemsError] unless something is wrong with the
// task.
func (h Handler[T, I]) divide(ctx context.Context, task *asynq.Task) ([]string, error) {
	d, _ := ctx.Value(dividedKey{}).(*divided[T, I])
	payload, err := h.decode(task)
	if err != nil {
		return nil, fmt.Errorf("the payload cannot be decoded: %w", err)
	}
	d.payload, d.parts = payload, h.Split(payload)
	if n := len(d.parts); n == 0 || n > h.MaxItems {
		return nil, fmt.Errorf("%w: Split returned %d of them, which must be 1 to %d (MaxItems)", ErrSplit, n, h.MaxItems)
	}
	d.items = &taskrun.ItemsError{Of: make([][]string, len(d.parts))}
	for i, part := range d.parts {
		d.items.Of[i] = h.ItemKeys(part)
	}
	if h.Keys != nil {
		d.items.Locked, d.items.Keys = true, h.Keys(payload)
		if err := checkDisjoint(d.items); err != nil {
			return nil, err
		}
	}
	if h.Policy == Whole {
		d.items.Locked = true
		for _, keys := range d.items.Of {
			d.items.Keys = append(d.items.Keys, keys...)
		}
	}
	return nil, d.items
}

// checkDisjoint returns an error if an item has a key that is locked for the whole run: it would be refused for ever.
func checkDisjoint(items *taskrun.ItemsError) error {
	whole := map[string]bool{}
	for _, key := range items.Keys {
		whole[key] = true
	}
	for i, keys := range items.Of {
		for _, key := range keys {
			if whole[key] {
				return fmt.Errorf("item %d has the key %q, which Keys locks for the whole run: let ItemKeys leave it out", i, key)
			}
		}
	}
	return nil
}

func (h Handler[T, I]) decode(task *asynq.Task) (payload T, err error) {
	if h.Decode != nil {
		return h.Decode(task)
	}
	err = json.Unmarshal(task.Payload(), &payload)
	return payload, err
}

// plan returns how a task is worked on.
func (h Handler[T, I]) plan(d *divided[T, I]) plan {
	p := plan{
		keys: d.items.Of, policy: h.Policy, parallel: h.Parallel, tries: h.Tries, inOrder: h.Sequential,
		work: func(ctx context.Context, i int) error { return h.Run(ctx, d.parts[i]) },
	}
	if h.Finish != nil {
		p.finish = func(ctx context.Context, r Report) error { return h.Finish(ctx, d.payload, r) }
	}
	return p
}
