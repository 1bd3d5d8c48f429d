package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// handler does the work of all tasks.
type handler struct {
	name   string // of the process
	ledger Ledger
	client *redis.Client // of the tasks, where locks by hand are
	locks  Locks
}

// errPlanned is how the first run of a task fails that is to fail.
var errPlanned = errors.New("tasks: this run was to fail")

// patience bounds each call of the ledger, and the wait for a lock by hand.
const patience = 10 * time.Second

// ProcessTask runs a task.
func (h handler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	t, err := decode(task.Payload())
	if err != nil {
		return err
	}
	r := Run{Key: t.Key, Task: strconv.Itoa(t.Number), Name: h.name + "/" + rand.Text(), Token: time.Now().UnixMicro()}
	believes := func() bool { return true } // one without a lease does not know better
	switch h.locks {
	case Ordered:
		lease, ok := locking.FromContext(ctx)
		if !ok {
			return errors.New("tasks: no lease")
		}
		if r.Token, err = lease.Fence(ctx); err != nil {
			return err
		}
		believes = func() bool { return lease.Err() == nil && time.Now().Before(lease.ValidUntil()) }
	case ByHand:
		release, err := h.lockByHand(ctx, t.Key, r.Name)
		if err != nil {
			return err
		}
		defer release()
	case None:
	}
	return h.run(ctx, t, r, believes)
}

// run makes the effect of a task. It looks at its lease only by its context, as programs do: the ledger is what protects it.
func (h handler) run(ctx context.Context, t Task, r Run, believes func() bool) error {
	calls, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	came := time.Now()
	revision, known, err := h.ledger.Claim(calls, r)
	if err != nil {
		return err
	}
	if !known {
		err = h.work(ctx, calls, t, r, revision)
	}
	met, failed := h.ledger.Leave(calls, r)
	if met != "" && believes() { // after the answer, so it held the key when the other one came
		failed = h.ledger.Met(calls, Meeting{r, Run{Name: met}, came, time.Now()})
	}
	return errors.Join(err, failed)
}

func (h handler) work(ctx, calls context.Context, t Task, r Run, revision int64) error {
	works := time.Duration(mathrand.ExpFloat64() * float64(time.Millisecond))
	if t.Slow {
		works = TTL + 500*time.Millisecond
	}
	timer := time.NewTimer(works)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		if h.locks == Ordered {
			return context.Cause(ctx)
		}
	}
	if retried, _ := asynq.GetRetryCount(ctx); t.Fails && retried == 0 {
		return errPlanned
	}
	return h.ledger.Commit(calls, r, revision+1)
}

// deleteScript deletes a lock that is still the caller's.
var deleteScript = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

// lockByHand is the lock that people write by hand: a key with a TTL, which its holder deletes.
func (h handler) lockByHand(ctx context.Context, key, owner string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := h.client.SetArgs(ctx, "lock:"+key, owner, redis.SetArgs{Mode: "NX", TTL: TTL}).Result()
		if ok == "OK" {
			return func() { deleteScript.Run(context.WithoutCancel(ctx), h.client, []string{"lock:" + key}, owner) }, nil
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
