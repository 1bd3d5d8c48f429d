package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/pglock"
	"github.com/railtoken/railtoken/worker"
)

// plan is the size of a run.
type plan struct {
	Transfers, Accounts, Workers, Stops, Kills int
	TTL                                        time.Duration
}

// window is how many transfers are enqueued or running at a time.
const window = 200

// longSilence is how long no handler may end, before the open transfers count as lost. asynq returns the task of a dead worker to
// its queue within 90 s.
const longSilence = 100 * time.Second

// mostFailed is how many handlers may fail by other causes than a refusal. A busy database may end a connection.
const mostFailed = 20

// result is what a run has shown.
type result struct {
	Dialect fence.Dialect
	Mode    mode
	findings
	runs         map[outcome]int // of handlers, by how they ended
	stops, kills int
	took         time.Duration
}

// run is all transfers in one mode on one store.
type run struct {
	plan
	mode     mode
	crew     *crew
	director *director
	client   *worker.Client
	waiting  []transfer       // not enqueued yet
	open     map[int]transfer // enqueued, and not known to be done
	result   result
}

// measure moves money in a mode, and audits the ledger.
func (p plan) measure(ctx context.Context, db database, m mode) (_ result, err error) {
	ledger, err := db.open()
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, ledger.db.Close()) }()
	if err := ledger.reset(ctx, p.Accounts); err != nil {
		return result{}, err
	}
	if m == inTx {
		if err := pglock.Create(ctx, ledger.db); err != nil {
			return result{}, err
		}
	}
	server, err := startRedis()
	if err != nil {
		return result{}, err
	}
	defer server.close()
	client, err := worker.NewClient(worker.Redis{Addr: server.addr})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	crew, err := newCrew(job{Mode: m, Database: db, Redis: server.addr, TTL: p.TTL})
	if err != nil {
		return result{}, err
	}
	r := &run{
		plan: p, mode: m, crew: crew, client: client,
		director: newDirector(p.TTL, p.Transfers, p.Stops, p.Kills, p.Workers),
		waiting:  makeTransfers(p.Transfers, p.Accounts), open: map[int]transfer{},
		result: result{Dialect: db.Dialect, Mode: m, runs: map[outcome]int{}},
	}
	begin := time.Now()
	err = r.all(ctx)
	if err = errors.Join(err, crew.stop(err != nil)); err != nil {
		return result{}, fmt.Errorf("%s, %s: %w", db.Dialect, m, err)
	}
	r.result.took = time.Since(begin)
	r.result.stops, r.result.kills = r.director.stops, r.director.kills
	r.result.findings, err = ledger.audit(ctx)
	return r.result, err
}

// all starts the workers and returns when all transfers are done.
func (r *run) all(ctx context.Context) error {
	for range r.Workers {
		if err := r.crew.start(); err != nil {
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	progress := time.Now()
	for {
		if err := r.fill(ctx); err != nil {
			return err
		}
		if len(r.open) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-r.crew.events:
			if err := r.on(ctx, e); err != nil {
				return err
			}
			progress = time.Now()
		case now := <-tick.C:
			if err := r.do(r.director.tick(now)); err != nil {
				return err
			}
			if now.Sub(progress) > longSilence {
				return fmt.Errorf("%d transfers are lost: no handler has ended for %v", len(r.open), longSilence)
			}
		}
	}
}

// fill enqueues transfers as long as there is room.
func (r *run) fill(ctx context.Context) error {
	for len(r.waiting) > 0 && len(r.open) < window {
		t := r.waiting[0]
		r.waiting = r.waiting[1:]
		if err := r.enqueue(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) enqueue(ctx context.Context, t transfer) error {
	r.open[t.ID] = t
	taskType, queue := transferType, transferQueue
	if t.settles() {
		taskType, queue = settleType, settleQueue
	}
	_, err := r.client.Enqueue(ctx, taskType, t, asynq.Queue(queue), asynq.MaxRetry(1000))
	return err
}

// on handles an event of a worker.
func (r *run) on(ctx context.Context, e event) error {
	now := time.Now()
	switch p := r.crew.member[e.worker]; {
	case e.over:
		return r.replace(ctx, e.worker)
	case e.Event == reading:
		p.moving = &e.Transfer
		return r.do(r.director.read(now, e.worker, e.Transfer))
	default:
		p.moving = &e.Transfer
		r.result.runs[e.Outcome]++
		if r.result.runs[failed] > mostFailed {
			return fmt.Errorf("more than %d handlers failed, the last of transfer %d: %s", mostFailed, e.Transfer.ID, e.Err)
		}
		if e.Outcome == applied || e.Outcome == again { // asynq runs the others again
			delete(r.open, e.Transfer.ID)
		}
		acts := r.director.ended(now, e.worker, e.Outcome == applied)
		if !slices.Contains(acts, action{kill, e.worker}) {
			p.moving = nil
		}
		return r.do(acts)
	}
}

// replace starts another worker for one that was killed. What that was working on is enqueued again, as a producer does that does
// not know how it ended. Later asynq itself may run the first task again, too.
func (r *run) replace(ctx context.Context, id int) error {
	p, err := r.crew.leave(id)
	if err != nil {
		return err
	}
	if err := r.do(r.director.leave(time.Now(), id)); err != nil {
		return err
	}
	if p.moving != nil {
		if err := r.enqueue(ctx, *p.moving); err != nil {
			return err
		}
	}
	return r.crew.start()
}

func (r *run) do(acts []action) error {
	for _, a := range acts {
		if err := r.crew.do(a); err != nil {
			return err
		}
	}
	return nil
}

// verdict returns what is wrong with a result, or nil: a strong mode loses nothing, and each other mode loses something.
func (r result) verdict(transfers int) error {
	what := fmt.Sprintf("%s, %s", r.Dialect, r.Mode)
	switch {
	case r.done != transfers:
		return fmt.Errorf("%s: %d of %d transfers are in the journal", what, r.done, transfers)
	case r.Mode.strong() && (r.sum != 0 || r.off != 0):
		return fmt.Errorf("%s: the sum differs by %d cents, accounts by %d; want 0", what, r.sum, r.off)
	case r.Mode.strong() && r.duplicates != 0:
		return fmt.Errorf("%s: %d transfers have had their effect twice", what, r.duplicates)
	case !r.Mode.strong() && r.off == 0:
		return fmt.Errorf("%s: nothing is lost, so the stalls have tested nothing", what)
	}
	return nil
}
