package attach

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

// reports are what tells operators of the servers, and the servers of operators and of other servers: reports of what
// their tasks hold and where their locks are, and leases that end when an operator takes their keys away. The zero value
// has none.
type reports struct {
	mu       sync.Mutex
	reporter *holdings.Reporter
	begun    bool
	closed   bool
	stop     func() // following depositions
}

// ready reports the start of the servers before one fetches, checks Redis, starts the reports, and has leases end that an operator takes away.
func (a *Attached) ready(ctx context.Context) error {
	a.started(ctx)
	if err := a.Check(ctx); err != nil {
		return err
	}
	return a.reports.start(ctx, a)
}

// start starts all of this once. It fails, and may be called again, if there are other servers with which the servers of a
// must not run.
func (r *reports) start(ctx context.Context, a *Attached) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.begun {
		return nil
	}
	look := func(ctx context.Context, _ bool) (*holdings.Rival, string, error) { return r.of(a).Rival(ctx) }
	if !a.opts.DisableReports {
		look = r.of(a).Start
	}
	rival, store, err := look(ctx, a.opts.AllowSeparateLocks)
	if err != nil {
		return fmt.Errorf("attach: compare where the servers have their locks: %w", err)
	}
	if rival != nil {
		if !a.opts.AllowSeparateLocks {
			return separate(store, rival)
		}
		a.beside(store, rival)
	}
	r.begun = true
	a.recovery.start(a, r.reporter)
	r.stop, _ = locks.EndWhenDeposed(a.locker) // it fails once the Locker is closed
	return nil
}

// compare looks whether start would fail.
func (r *reports) compare(ctx context.Context, a *Attached) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.begun || a.opts.AllowSeparateLocks {
		return nil
	}
	rival, store, err := r.of(a).Rival(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("attach: compare where the servers have their locks: %w", err)
	case rival != nil:
		return separate(store, rival)
	}
	return nil
}

// of returns the Reporter of a. The caller holds the mutex.
func (r *reports) of(a *Attached) *holdings.Reporter {
	if r.reporter == nil {
		r.reporter = holdings.New(a.client, (*line.Engine)(a.queue).Held(), holdings.Worker{
			Queues: a.served(), Lanes: a.lanes.Count(), Slots: a.server.Slots, Config: a.fingerprint(), Backend: locks.Backend(a.locker),
		}, holdings.Options{
			Store: func(ctx context.Context) (string, bool) { return locks.Store(ctx, a.locker) },
			Moved: a.moved, Beside: a.beside, Parked: line.Awaited{Engine: (*line.Engine)(a.queue)},
			Name: a.recovery.name, After: a.recovery.reported(), Lapse: a.recovery.lapse(), Lapsed: a.lapsed, Looked: a.recovery.look, Crowded: a.crowded,
		})
		a.recovery.reporter.Store(r.reporter)
	}
	return r.reporter
}

func (r *reports) close(a *Attached) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	a.recovery.close()
	if r.stop != nil {
		r.stop()
	}
	if r.reporter == nil || r.reporter.Close() { // otherwise others may take this worker for dead: its leases end before
		a.recovery.unfollow()
	}
}

// fingerprint returns a name for the configuration: servers with different settings have different ones. Functions and
// the settings of strategies that others wrote are not part of it.
func (a *Attached) fingerprint() string {
	o := a.opts
	text := fmt.Sprintf("%v %v %v %v %v %v %v %v %v %v %v %T", a.queues(), a.cfg.StrictPriority, a.server.Slots,
		o.SlotBudget, strategySettings(o.Strategy), o.TTL, o.MaxHold, o.MaxKeySize, o.MaxKeys, a.interval,
		a.cfg.DelayedTaskCheckInterval, a.locker)
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// strategySettings returns the types of the strategies, each followed by the next one, and the settings of ours. They
// have no addresses of functions or of other strategies, which differ from process to process.
func strategySettings(s middleware.Strategy) []string {
	var all []string
	for s != nil {
		text := fmt.Sprintf("%T", s)
		if requeue, ok := middleware.RequeueOf(s); ok {
			requeue.OnLimit = nil
			text += fmt.Sprintf("%+v", requeue)
		}
		if wait, ok := s.(middleware.Wait); ok {
			text += fmt.Sprintf("%+v", wait.Then(nil))
		}
		all = append(all, text)
		link, ok := s.(interface{ Unwrap() middleware.Strategy })
		if !ok {
			break
		}
		s = link.Unwrap()
	}
	return all
}
