package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// soon is when the next task of a key has run after whatever became of the first.
const soon = 2 * time.Second

// fate is what becomes of the tasks behind a head within soon.
type fate int

const (
	nobody fate = iota // there is no such head
	follow             // the head runs, and they follow it
	pass               // they run without it
	waits              // they rightly wait for the exit of the row, and run within soon of it
)

// The scenes: the tasks behind the head arrive after it has become what it is; they are parked behind it, and a task
// before it holds the key; or the head itself has had the key.
const (
	arrive       = "the next arrives"
	parkedBehind = "the next is parked"
	began        = "the head has begun"
)

// headRow is one kind of head: the first task of a key, and what the tasks behind it do.
type headRow struct {
	scenes       string
	retries      int // of the head
	becomes      func(h *headRig)
	fifo, strict fate
	exit         func(h *headRig) // what ends the wait is documented (design.md, 5.3)
	passes       bool             // with the exit, the next run without the head
	fails        bool             // its handler fails
	minutes      bool             // the exit takes minutes: in virtual time only
}

// headDelay is until a failed task is tried again, and recovery until asynq's recoverer looks again.
const headDelay, recovery = 2 * time.Minute, time.Minute

var headRows = map[string]headRow{
	"is pending": {scenes: arrive + parkedBehind, becomes: func(*headRig) {}, fifo: follow, strict: follow},
	"was brought back by its timer": {
		scenes: parkedBehind, fifo: follow, strict: follow,
		becomes: func(h *headRig) { h.check(h.inspect.RunTask(h.head.Queue, h.head.ID)) },
	},
	"was parked by an earlier version": {
		scenes: parkedBehind, fifo: follow, strict: follow,
		becomes: func(h *headRig) {
			hash := h.prefix() + "t:" + h.head.ID
			h.client.HDel(h.Context(), hash, line.WaitField)
			h.client.HSet(h.Context(), hash, "railtoken:waiters", line.Names{}.Waiters(h.key))
		},
	},
	"was put off": {
		scenes: arrive, fifo: waits, strict: waits, exit: later(10 * time.Second),
		becomes: func(h *headRig) {
			h.ends("pending", "retry", 10*time.Second, "railtoken:nonce", "a run", "pending_since", "a run")
		},
	},
	"works": {scenes: began, becomes: func(*headRig) {}, fifo: waits, strict: waits, passes: true, exit: func(h *headRig) { close(h.end) }},

	"'s worker died before it began": {
		scenes: arrive + parkedBehind, fifo: follow, strict: follow,
		becomes: func(h *headRig) { h.taken(h.key, false); h.leased(-10 * time.Second) },
	},
	"'s worker died at work": {
		scenes: arrive, retries: 3, fifo: follow, strict: follow,
		becomes: func(h *headRig) { h.taken(h.key, true); h.leased(-10 * time.Second) },
	},
	"'s worker died on its last attempt": {
		scenes: arrive, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.taken(h.key, true); h.leased(-10 * time.Second) },
	},
	"is active without a lease": {
		scenes: arrive + parkedBehind, fifo: follow, strict: follow,
		becomes: func(h *headRig) { h.taken(h.key, false); h.unleased() },
	},
	"has begun and has no lease": {
		scenes: arrive, retries: 3, fifo: follow, strict: follow,
		becomes: func(h *headRig) { h.taken(h.key, true); h.unleased() },
	},
	"'s worker died long ago, and a server starts": {
		scenes: arrive, retries: 3, fifo: pass, strict: waits, minutes: true, exit: later(headDelay),
		becomes: func(h *headRig) { h.taken(h.key, true); h.leased(-5 * time.Minute) },
	},
	"'s worker died long ago under FIFO": {
		scenes: parkedBehind, retries: 3, fifo: waits, minutes: true, exit: later(recovery + 5*time.Second), passes: true,
		becomes: func(h *headRig) { h.taken(h.key, false); h.leased(-5 * time.Minute) },
	},
	"'s worker died long ago": {
		scenes: parkedBehind, retries: 3, strict: waits, minutes: true, exit: later(recovery + headDelay),
		becomes: func(h *headRig) { h.taken(h.key, false); h.leased(-5 * time.Minute) },
	},

	"failed":          {scenes: began, retries: 3, fails: true, becomes: func(*headRig) {}, fifo: pass, strict: waits, minutes: true, exit: later(headDelay)},
	"failed for good": {scenes: began, fails: true, becomes: func(*headRig) {}, fifo: pass, strict: pass},
	"failed and was archived": {
		scenes: began, retries: 3, fails: true, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.check(h.inspect.ArchiveTask(h.head.Queue, h.head.ID)) },
	},
	"failed and was deleted": {
		scenes: began, retries: 3, fails: true, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.check(h.inspect.DeleteTask(h.head.Queue, h.head.ID)) },
	},
	"failed on a server without railtoken": {
		scenes: arrive, retries: 3, fifo: pass, strict: waits, minutes: true, exit: later(headDelay),
		becomes: func(h *headRig) { h.taken(h.key, false); h.ends("active", "retry", headDelay) },
	},
	"was completed by a server without railtoken": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.taken(h.key, false); h.ends("active", "completed", headDelay) },
	},

	"was deleted": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.check(h.inspect.DeleteTask(h.head.Queue, h.head.ID)) },
	},
	"was archived": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.check(h.inspect.ArchiveTask(h.head.Queue, h.head.ID)) },
	},
	"is a later task with its ID, scheduled": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.again(h.key, asynq.ProcessIn(time.Hour)) },
	},
	"is a later task with its ID, in order, scheduled": {scenes: arrive + parkedBehind, fifo: pass, strict: pass, becomes: func(h *headRig) {
		h.check(h.inspect.DeleteTask(h.head.Queue, h.head.ID))
		for range 2 { // its producer cannot know whether the first call succeeded
			_, err := h.put(9, asynq.TaskID(h.head.ID), asynq.Queue(h.other), asynq.ProcessIn(time.Hour))
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
				h.Fatal(err)
			}
		}
	}},
	"has another key, and is scheduled": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.again(h.key+"-2", asynq.ProcessIn(time.Hour)) },
	},
	"has another key, and works": {
		scenes: arrive + parkedBehind, fifo: pass, strict: pass,
		becomes: func(h *headRig) { h.again(h.key+"-2", asynq.ProcessIn(time.Hour)); h.taken(h.key+"-2", true) },
	},
	"is overdue": {scenes: parkedBehind, fifo: pass, strict: pass, becomes: func(h *headRig) {
		hash := h.prefix() + "t:" + h.head.ID
		w := line.ParseWait(h.client.HGet(h.Context(), hash, line.WaitField).Val())
		w.Deadline = time.Now().Add(-time.Second).Unix()
		h.client.HSet(h.Context(), hash, line.WaitField, w.String())
	}},

	"'s queue is paused": {
		scenes: arrive + parkedBehind, fifo: waits, strict: waits,
		becomes: func(h *headRig) { h.check(h.inspect.PauseQueue(h.other)) },
		exit:    func(h *headRig) { h.check(h.inspect.UnpauseQueue(h.other)) },
	},
	"'s queue is unserved": {
		scenes: arrive, fifo: waits, strict: waits,
		becomes: func(h *headRig) { delete(h.cfg.Queues, h.other) },
		exit: func(h *headRig) {
			h.cfg.Queues[h.other] = 1
			h.serve(h.opts, h.cfg, h.handle)
		},
	},
}

// later returns an exit that is time alone.
func later(d time.Duration) func(h *headRig) { return func(*headRig) { <-time.After(d) } }

// headRig is a key whose first task becomes something.
type headRig struct {
	*rig
	script
	key, other string // other is the queue of the head, and key that of the tasks behind it
	head       delayqueue.Task
	order      middleware.Order
	end        chan struct{} // ends the work of the task that has the key
	cfg        asynq.Config
	opts       options
}

func (h *headRig) prefix() string { return "asynq:{" + h.other + "}:" }

func (h *headRig) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// put enqueues a task of the key in order.
func (h *headRig) put(n int, opts ...asynq.Option) (delayqueue.Task, error) {
	data := fmt.Appendf(nil, `{"key":%q,"n":%d}`, h.key, n)
	info, err := (*line.Engine)(h.queue).EnqueueInOrder(h.Context(), h.key, "test", data, nil, opts...)
	if err != nil {
		return delayqueue.Task{}, err
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}, nil
}

// first enqueues the head, and next the tasks behind it.
func (h *headRig) first(row headRow) {
	h.Helper()
	var err error
	h.head, err = h.put(1, asynq.Queue(h.other), asynq.MaxRetry(row.retries))
	h.check(err)
}

func (h *headRig) next(all ...int) {
	h.Helper()
	for _, n := range all {
		_, err := h.put(n, asynq.Queue(h.key))
		h.check(err)
	}
}

// taken has a worker take the head, wherever it is, that is none of this test's.
func (h *headRig) taken(key string, works bool) {
	h.Helper()
	_, err := h.client.Pipelined(h.Context(), func(pipe redis.Pipeliner) error {
		pipe.LRem(h.Context(), h.prefix()+"pending", 0, h.head.ID)
		pipe.ZRem(h.Context(), h.prefix()+"retry", h.head.ID)
		pipe.ZRem(h.Context(), h.prefix()+"scheduled", h.head.ID)
		pipe.LPush(h.Context(), h.prefix()+"active", h.head.ID)
		pipe.HSet(h.Context(), h.prefix()+"t:"+h.head.ID, "state", "active", "pending_since", "a run")
		return nil
	})
	h.check(err)
	h.leased(30 * time.Second)
	_, err = (*line.Engine)(h.queue).Join(h.Context(), line.Task(h.head), key,
		line.JoinOptions{Begins: true, Works: works, Strict: h.order == middleware.StrictFIFO})
	h.check(err)
}

func (h *headRig) leased(end time.Duration) {
	h.client.ZAdd(h.Context(), h.prefix()+"lease", redis.Z{Score: float64(time.Now().Add(end).Unix()), Member: h.head.ID})
}

func (h *headRig) unleased() { h.client.ZRem(h.Context(), h.prefix()+"lease", h.head.ID) }

// ends moves the head from a list to a set, due after a delay. asynq's own servers leave no pending_since (v0.26).
func (h *headRig) ends(from, state string, delay time.Duration, fields ...any) {
	h.Helper()
	_, err := h.client.Pipelined(h.Context(), func(pipe redis.Pipeliner) error {
		pipe.LRem(h.Context(), h.prefix()+from, 0, h.head.ID)
		pipe.ZRem(h.Context(), h.prefix()+"lease", h.head.ID)
		pipe.HDel(h.Context(), h.prefix()+"t:"+h.head.ID, "pending_since")
		pipe.HSet(h.Context(), h.prefix()+"t:"+h.head.ID, append(fields, "state", state)...)
		pipe.ZAdd(h.Context(), h.prefix()+state, redis.Z{Score: float64(time.Now().Add(delay).Unix()), Member: h.head.ID})
		return nil
	})
	h.check(err)
}

// again deletes the head, and enqueues another task with its ID.
func (h *headRig) again(key string, opts ...asynq.Option) {
	h.Helper()
	h.check(h.inspect.DeleteTask(h.head.Queue, h.head.ID))
	h.enqueue(payload{Key: key, N: 9}, append([]asynq.Option{asynq.TaskID(h.head.ID), asynq.Queue(h.other)}, opts...)...)
}

// play plays a scene of a row, and checks the order in which the handlers begin.
func (h *headRig) play(scene string, row headRow, fate fate) {
	h.Helper()
	var before []int
	h.steps = func(ctx context.Context, n, run int) error {
		switch {
		case n == 1 && run == 1 && row.fails:
			return errors.New("it failed")
		case n == 0 || n == 1 && scene == began && !row.fails:
			select {
			case <-h.end:
			case <-ctx.Done():
			}
		}
		return nil
	}
	serve := func() { h.serve(h.opts, h.cfg, h.handle) }
	switch scene {
	case arrive:
		h.first(row)
		row.becomes(h)
		h.next(2, 3)
		serve()
	case parkedBehind:
		serve()
		before = []int{0}
		h.next(0)
		h.sees(h.rig, limit, 0)
		h.first(row)
		h.next(2, 3)
		h.events.await(h, 3, parked)
		row.becomes(h)
		close(h.end)
	case began:
		serve()
		before = []int{1}
		h.first(row)
		h.sees(h.rig, limit, 1)
		h.next(2, 3)
		if !row.fails || h.order == middleware.StrictFIFO && row.retries > 0 {
			h.events.await(h, 2, parked)
		}
		if row.fails && row.retries > 0 { // those behind it may be parked before asynq has heard of its end
			h.settled(h.head, asynq.TaskStateRetry)
		}
		row.becomes(h)
	}
	switch fate {
	case follow:
		before = append(before, 1)
	case waits:
		<-time.After(soon)
		h.sees(h.rig, 0, before...)
		row.exit(h)
		if !row.passes {
			before = append(before, 1)
		}
	}
	h.sees(h.rig, soon, append(before, 2, 3)...)
	if h.overlap > 0 {
		h.Errorf("%d times two ran at once", h.overlap)
	}
}

// headSettings start the Redis on which each row is played, and return what plays one; make thorough has more of them.
var headSettings = map[string]func(t *testing.T) func(t *testing.T, play func(r *rig)){
	"one Redis": func(*testing.T) func(*testing.T, func(*rig)) { return bubble },
	"Cluster": func(*testing.T) func(*testing.T, func(*rig)) {
		return func(t *testing.T, play func(r *rig)) {
			t.Helper()
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Virtual(t)
				play(newRig(t, redistest.VirtualCluster(t, m)))
			})
		}
	},
}

var headKeys atomic.Int64

func TestNoHeadHoldsUpItsKey(t *testing.T) {
	t.Parallel()
	for where, start := range headSettings {
		setting := start(t)
		for name, row := range headRows {
			for order, fate := range map[middleware.Order]fate{middleware.FIFO: row.fifo, middleware.StrictFIFO: row.strict} {
				for _, scene := range []string{arrive, parkedBehind, began} {
					if fate == nobody || row.minutes && strings.HasPrefix(where, "real ") || !strings.Contains(row.scenes, scene) {
						continue
					}
					if where == "Cluster" && order == middleware.FIFO && row.fifo == row.strict {
						continue // StrictFIFO has the same fate there; make thorough tries both on a real Cluster
					}
					t.Run(fmt.Sprint(where, "/the head ", name, "/", scene, "/", order), func(t *testing.T) {
						t.Parallel()
						setting(t, func(r *rig) {
							key := fmt.Sprint("order-", headKeys.Add(1))
							h := &headRig{rig: r, key: key, other: "first-of-" + key, order: order, end: make(chan struct{})}
							h.looks, h.opts = lookSeldom, r.options(middleware.Requeue{Order: order})
							h.cfg = asynq.Config{
								Concurrency: 4, Queues: map[string]int{h.key: 1, h.other: 1},
								RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return headDelay },
							}
							h.play(scene, row, fate)
						})
					})
				}
			}
		}
	}
}
