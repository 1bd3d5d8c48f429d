package line_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

var errAway = errors.New("the server is away")

// away is a client one of whose calls finds no server: a single command or a pipeline.
type away struct {
	calls atomic.Int64
	at    int64 // the number of that call
}

func (a *away) lose(_ context.Context, cmds []redis.Cmder, next func() error) error {
	if opens := cmds[0].Name(); opens == "hello" || opens == "client" || a.calls.Add(1) != a.at { // those open a connection
		return next()
	}
	for _, cmd := range cmds {
		cmd.SetErr(errAway)
	}
	return errAway
}

// failingCalls are what an Engine does for callers, each after what makes it go all of its steps.
var failingCalls = map[string]struct {
	prepare func(r *rig)
	call    func(ctx context.Context, r *rig, e *line.Engine) error
}{
	"park where others wait": {
		prepare: func(r *rig) { r.Park(r.Delayed("b"), "k"); r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Park(ctx, r.task("a"), r.key("k"), line.ParkOptions{RetryAfter: time.Hour})
			return err
		},
	},
	"park for another key when woken": {
		prepare: func(r *rig) {
			r.Park(r.Delayed("a"), "before")
			r.Park(r.Delayed("b"), "before")
			r.Wake("before")
			r.Begin(r.task("a"))
		},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Park(ctx, r.task("a"), r.key("k"), line.ParkOptions{RetryAfter: time.Hour, Also: r.keysOf([]string{"l"})})
			return err
		},
	},
	"park without room": {
		prepare: func(r *rig) { r.Park(r.Delayed("b"), "k"); r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Park(ctx, r.task("a"), r.key("k"), line.ParkOptions{RetryAfter: time.Hour, MaxWaiters: 1})
			return err
		},
	},
	"put off": {
		prepare: func(r *rig) { r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			return e.Postpone(ctx, r.task("a"), line.ParkOptions{RetryAfter: time.Hour}.Of("run"))
		},
	},
	"wake": {
		prepare: func(r *rig) { r.Park(r.Delayed("a"), "k"); r.Park(r.Delayed("b"), "k") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Wake(ctx, r.key("k"), line.WakeOptions{})
			return err
		},
	},
	"wake as the leaver": {
		prepare: func(r *rig) {
			r.Park(r.Delayed("a"), "k")
			r.Park(r.Delayed("b"), "k")
			r.Wake("k")
			r.Begin(r.task("a"))
		},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Wake(ctx, r.key("k"), line.WakeOptions{Leaver: r.task("a")})
			return err
		},
	},
	"wake the next": {
		prepare: func(r *rig) { r.Park(r.Delayed("a"), "k") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.WakeNext(ctx, r.key("k"), line.WakeOptions{})
			return err
		},
	},
	"wake the first in place of one that is gone": {
		prepare: func(r *rig) {
			for i, id := range []string{"a", "b"} {
				r.joins(r.begun(id), "k", int64(i+1))
				r.Park(r.task(id), "k")
			}
			r.Remove(r.task("a"))
		},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.WakeTask(ctx, r.key("k"), r.task("a"))
			return err
		},
	},
	"leave": {
		prepare: func(r *rig) { r.Park(r.Delayed("a"), "k"); r.Wake("k"); r.Begin(r.task("a")) },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			return e.Leave(ctx, r.key("k"), r.task("a"))
		},
	},
	"forward a wake": {
		prepare: func(r *rig) {
			r.Park(r.Delayed("a"), "k")
			r.Park(r.Delayed("b"), "k")
			r.Wake("k")
			r.Begin(r.task("a"))
		},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			return e.ForwardWake(ctx, r.task("a"), false)
		},
	},
	"join behind another": {
		prepare: func(r *rig) { r.enters("b"); r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Join(ctx, r.task("a"), r.key("k"), line.JoinOptions{Begins: true})
			return err
		},
	},
	"join behind one that is gone": {
		prepare: func(r *rig) { r.enters("b"); r.Client.Del(r.Context(), hash(r.task("b"))); r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Join(ctx, r.task("a"), r.key("k"), line.JoinOptions{Begins: true})
			return err
		},
	},
	"leave a sequence": {
		prepare: func(r *rig) { r.enters("a"); r.enters("b") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Remove(ctx, r.task("a"), r.key("k"))
			return err
		},
	},
	"look at the front": {
		prepare: func(r *rig) { r.enters("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Front(ctx, r.key("k"))
			return err
		},
	},
	"look for room": {
		prepare: func(r *rig) { r.Park(r.Delayed("b"), "k") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Full(ctx, r.task("a"), r.key("k"), 1, 0)
			return err
		},
	},
	"look for room among all": {
		prepare: func(r *rig) { r.Park(r.Delayed("b"), "k"); r.Client.Del(r.Context(), hash(r.task("b"))) },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Full(ctx, r.task("a"), r.key("k"), 0, 1)
			return err
		},
	},
	"count the waiters": {
		prepare: func(r *rig) { r.Park(r.Delayed("b"), "k") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := line.Awaited{Engine: e}.Waiting(ctx, r.keysOf([]string{"k"}))
			return err
		},
	},
	"forget": {
		prepare: func(r *rig) { r.begun("a") },
		call:    func(ctx context.Context, r *rig, e *line.Engine) error { return e.Forget(ctx, r.task("a")) },
	},
	"bring back": {
		prepare: func(r *rig) { r.begun("a") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.BringBack(ctx, r.task("a"), true)
			return err
		},
	},
	"cancel one that waits": {
		prepare: func(r *rig) { r.Park(r.Delayed("a"), "k") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Cancel(ctx, r.task("a"), line.Cancellation{By: "ann"})
			return err
		},
	},
	"cancel the head of a sequence": {
		prepare: func(r *rig) {
			r.enters("a")
			r.Park(r.task("a"), "k")
			r.enters("b")
			r.Park(r.task("b"), "k")
		},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Cancel(ctx, r.task("a"), line.Cancellation{By: "ann"})
			return err
		},
	},
	"cancel one that runs": {
		prepare: func(r *rig) { r.begun("a"); r.set(r.task("a"), "pending_since", "run.1") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Cancel(ctx, r.task("a"), line.Cancellation{By: "ann"})
			return err
		},
	},
	"watch": {
		prepare: func(*rig) {},
		call:    func(ctx context.Context, r *rig, e *line.Engine) error { return e.Watch(ctx, r.key("k")) },
	},
	"pay what is owed": {
		prepare: func(r *rig) {
			r.Park(r.Delayed("a"), "k")
			r.Client.ZAdd(r.Context(), r.index()+":owed", redis.Z{Score: 1, Member: r.registry("k")})
		},
		call: func(ctx context.Context, _ *rig, e *line.Engine) error { return e.PayOwed(ctx) },
	},
	"enqueue in order": {
		prepare: func(r *rig) { r.enters("b") },
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.EnqueueInOrder(ctx, r.key("k"), "test", nil, nil, asynq.Queue(r.name))
			return err
		},
	},
	"enqueue the latest": {
		prepare: func(*rig) {},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, _, err := e.EnqueueLatest(ctx, price("price", "1"), []string{"a"}, line.Latest{Record: line.RecordOf(r.name, nil)}, asynq.Queue(r.name))
			return err
		},
	},
	"enqueue one that waits": {
		prepare: func(*rig) {},
		call: func(ctx context.Context, r *rig, e *line.Engine) error {
			_, err := e.Enqueue(ctx, asynq.NewTask("test", nil), line.EnqueueOptions{
				WaitFor: r.key("k"), ParkOptions: line.ParkOptions{RetryAfter: time.Hour},
			}, asynq.Queue(r.name))
			return err
		},
	},
}

// enters adds a task that a worker has fetched to the sequence of the key "k".
func (r *rig) enters(id string) {
	r.Helper()
	if _, err := r.Engine.Join(r.Context(), r.begun(id), r.key("k"), line.JoinOptions{Begins: true}); err != nil {
		r.Fatal(err)
	}
}

// Whichever call to Redis fails, the caller gets its error or the log has it.
func TestNoFailedCallIsPassedOverInSilence(t *testing.T) {
	t.Parallel()
	for name, one := range failingCalls {
		for _, kind := range kinds {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				healthy, client := shared.clientOf(t, kind), shared.clientOf(t, kind)
				process := &away{}
				client.AddHook(lossy(process.lose))
				for n, made := int64(1), true; made; n++ {
					r := newRigOn(t, kind, healthy)
					one.prepare(r)
					var log bytes.Buffer
					e := r.newQueue(client, line.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
					process.calls.Store(0)
					process.at = n
					err := one.call(t.Context(), r, e)
					e.Settle()
					_ = e.Close() // it would make the wake again, with further calls
					if made = process.calls.Load() >= n; made != (err != nil || log.Len() > 0) {
						t.Errorf("call %d fails: %v; the error is %v, and the log says %q", n, made, err, &log)
					}
				}
			})
		}
	}
}
