package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
	"github.com/railtoken/railtoken/worker"
)

// workerVariable has the job of a worker process, as JSON. The program is a worker if it is set.
const workerVariable = "RAILTOKEN_LEDGER_WORKER"

// job is what a worker process needs to know.
type job struct {
	Mode     mode
	Database database
	Redis    string
	TTL      time.Duration
}

// message is what a worker tells the parent, one line of JSON each. It waits for a line in answer.
type message struct {
	Event    string // reading, when a handler has read its balances; ended, when it is about to return
	Transfer transfer
	Outcome  outcome // of an ended one
	Err      string  // of a failed one
}

const (
	reading = "reading"
	ended   = "ended"
)

// outcome is how a run of a handler ended.
type outcome string

// The outcomes.
const (
	applied outcome = "applied"
	again   outcome = "again"   // an earlier run had applied it
	refused outcome = "refused" // a later holder had the account
	failed  outcome = "failed"
)

// mayBeWorker runs a worker and returns true in the process of one.
func mayBeWorker() bool {
	spec := os.Getenv(workerVariable)
	if spec == "" {
		return false
	}
	var j job
	err := json.Unmarshal([]byte(spec), &j)
	if err == nil {
		err = j.work(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// quiet keeps go-redis from writing to stderr.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// work runs handlers until in ends.
func (j job) work(in io.Reader, out io.Writer) (err error) {
	ctx := context.Background()
	redis.SetLogger(quiet{})
	s, err := j.Database.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	cfg := worker.Config{
		Redis: worker.Redis{Addr: j.Redis}, Queues: map[string]int{transferQueue: 3, settleQueue: 1},
		Concurrency: 1, // so that a stop hits a handler between its read and its write, and no other
		LockTTL:     j.TTL, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
		Logger:         slog.New(slog.DiscardHandler),
	}
	if j.Mode == inTx {
		locks, err := j.Database.open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, locks.db.Close()) }()
		locker, err := pglock.New(ctx, locks.db, pglock.Options{Listen: j.Database.Source})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, locker.Close()) }()
		cfg.Locker = locker
	}
	w, err := worker.New(cfg)
	if err != nil {
		return err
	}
	h := &handler{mode: j.Mode, store: s, out: out, answers: make(chan struct{})}
	for _, taskType := range []string{transferType, settleType} {
		handle := worker.Handler[transfer]{Run: h.run}
		if j.Mode == noLock {
			handle.Unlocked = true
		} else {
			handle.Keys = transfer.keys
		}
		if err := worker.Handle(w, taskType, handle); err != nil {
			return err
		}
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		h.answers <- struct{}{}
	}
	close(h.answers) // a handler that waits for the parent need not, any more
	return w.Shutdown()
}

// handler moves money.
type handler struct {
	mode    mode
	store   *store
	out     io.Writer
	answers chan struct{}
}

// run is the handler of both task types.
func (h *handler) run(ctx context.Context, t transfer) error {
	err := h.move(ctx, t)
	m := message{Event: ended, Transfer: t, Outcome: applied}
	switch {
	case errors.Is(err, fence.ErrApplied):
		m.Outcome = again
	case errors.Is(err, fence.ErrFenced), errors.Is(err, locking.ErrLost):
		m.Outcome = refused
	case err != nil:
		m.Outcome, m.Err = failed, err.Error()
	}
	h.tell(m)
	if m.Outcome == again {
		return nil
	}
	return err
}

// move reads both balances in one transaction, and writes them in another.
//
// No statement uses the handler's context, which ends when the lease is lost: a process may be stopped after each check of a
// context, with the statement on its way, and the ledger is about these stops.
func (h *handler) move(ctx context.Context, t transfer) error {
	g, err := guardOf(ctx, h.mode, h.store.dialect, t)
	if err != nil {
		return err
	}
	late := context.WithoutCancel(ctx)
	var payer, payee int64
	err = h.store.in(late, func(tx *sql.Tx) (err error) {
		if err = g.read(late, tx); err == nil {
			payer, payee, err = h.store.balances(late, tx, t)
		}
		return err
	})
	if err != nil {
		return err
	}
	h.tell(message{Event: reading, Transfer: t})
	err = h.store.in(late, func(tx *sql.Tx) error {
		if err := g.write(late, tx); err != nil {
			return err
		}
		return h.store.book(late, tx, t, payer-t.Cents, payee+t.Cents)
	})
	if lease, ok := locking.FromContext(ctx); ok && err == nil {
		lease.MarkCommitted()
	}
	return err
}

// tell sends a message and waits for the answer.
func (h *handler) tell(m message) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = h.out.Write(append(line, '\n'))
	}
	if err != nil {
		return // the parent is gone, and the end of its pipe ends the worker
	}
	<-h.answers
}
