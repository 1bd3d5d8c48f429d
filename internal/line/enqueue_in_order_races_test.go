package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// between returns a Queue of another process, which calls do between the two steps of an Enqueue for key k.
func (r *solo) between(do func()) *line.Engine {
	r.Helper()
	r.enqueue("warm", asynq.Queue("warm")) // a script that the server does not know would be a step more
	client := redis.NewClient(r.Client.Options())
	r.Cleanup(func() { _ = client.Close() })
	var steps atomic.Int32
	client.AddHook(before(func(cmd redis.Cmder) {
		if !strings.HasPrefix(cmd.Name(), "eval") || len(cmd.Args()) < 4 {
			return
		}
		name := fmt.Sprint(cmd.Args()[3])
		if strings.HasPrefix(name, "railtoken:sequence:{k}") || strings.HasPrefix(name, "asynq:{default}:t:") {
			if steps.Add(1) == 2 {
				do()
			}
		}
	}))
	r.Cleanup(func() {
		if n := steps.Load(); n < 2 {
			r.Errorf("%d steps were taken, want 2 at least", n)
		}
	})
	return r.on(client)
}

func TestATaskThatIsBeingEnqueuedIsNotGone(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(r *solo, a, d line.Task){
		"a task leaves":        func(r *solo, a, _ line.Task) { r.remove(a, "k") },
		"a task asks its turn": func(r *solo, _, d line.Task) { r.turn(d, "k", line.JoinOptions{}) },
		"another one is enqueued": func(r *solo, a, _ line.Task) {
			r.remove(a, "k")
			d := r.enqueue("k", asynq.TaskID("between"))
			r.turn(d, "k", line.JoinOptions{})
			r.remove(d, "k")
			r.Remove(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			a := r.enqueue("k", asynq.TaskID("a"))
			d := r.Delayed("d")
			queue := r.between(func() { look(r, a, d) })
			if _, err := queue.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("b")); err != nil {
				t.Fatal(err)
			}
			for _, done := range []line.Task{a, d} {
				r.remove(done, "k")
				r.Remove(done)
			}
			c := r.enqueue("k", asynq.TaskID("c"))
			if turn := r.turn(c, "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First.ID != "b" {
				t.Errorf("a task that was enqueued after the other one's Enqueue had returned stands at %+v", turn)
			}
		})
	}
}

// run begins the only task that is pending, as a worker does, and ends it as told.
func (r *solo) run(t line.Task, during func() error) {
	r.Helper()
	ended := make(chan struct{})
	r.Serve(1, func(context.Context, string) error {
		defer close(ended)
		return during()
	})
	receive(r, ended)
	r.Until("task "+t.String()+" is not active any more", func() bool {
		return r.Client.HGet(r.Context(), hash(t), "state").Val() != "active"
	})
}

func TestATaskThatRunsDuringItsEnqueueJoinsOnce(t *testing.T) {
	t.Parallel()
	b := line.Task{Queue: "default", ID: "b"}
	for name, tt := range map[string]struct {
		during func(r *solo) error // of its run
		inLine bool                // afterwards
	}{
		"it is done": {func(r *solo) error {
			r.turn(b, "k", line.JoinOptions{Begins: true})
			r.remove(b, "k")
			return nil
		}, false},
		"it has failed and left the line": {func(r *solo) error {
			r.turn(b, "k", line.JoinOptions{Begins: true})
			r.remove(b, "k")
			return errors.New("it failed")
		}, false},
		"it has failed and keeps its place": {func(r *solo) error {
			r.turn(b, "k", line.JoinOptions{Begins: true, Strict: true})
			return errors.New("it failed")
		}, true},
		"it is parked": {func(r *solo) error {
			r.turn(b, "k", line.JoinOptions{Begins: true})
			run, err := r.Engine.Run(b)
			r.OK(err)
			run.Park("k", line.ParkOptions{RetryAfter: time.Hour}, nil)
			return errors.New("refused")
		}, true},
		"it is archived": {func(r *solo) error {
			r.turn(b, "k", line.JoinOptions{Begins: true})
			r.remove(b, "k")
			return asynq.SkipRetry
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			queue := r.between(func() { r.run(b, func() error { return tt.during(r) }) })
			if _, err := queue.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("b")); err != nil {
				t.Fatal(err)
			}
			if got := r.line("k"); (len(got) == 1) != tt.inLine {
				t.Errorf("in line are %v", got)
			}
			if _, err := queue.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("c"),
				asynq.Queue("other")); err != nil {
				t.Fatal(err)
			}
			c := line.Task{Queue: "other", ID: "c"}
			if turn := r.turn(c, "k", line.JoinOptions{}); (turn.Ahead == 1) != tt.inLine {
				t.Errorf("the next one stands at %+v", turn)
			}
		})
	}
}

// A run that has not asked its turn yet finds the place that its producer gives it, and keeps it.
func TestATaskThatIsActiveWhenItJoinsStays(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	began, ask, asked, end := make(chan struct{}), make(chan struct{}), make(chan line.Position,
		1), make(chan struct{})
	b := line.Task{Queue: "default", ID: "b"}
	queue := r.between(func() {
		r.Serve(1, func(context.Context, string) error {
			close(began)
			<-ask
			asked <- r.turn(b, "k", line.JoinOptions{Begins: true, Strict: true})
			<-end
			return errors.New("it failed, and keeps its place")
		})
		receive(t, began)
	})
	if _, err := queue.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("b")); err != nil {
		t.Fatal(err)
	}
	c := r.enqueue("k", asynq.Queue("other"))
	close(ask)
	if turn := receive(t, asked); turn.Ahead != 0 {
		t.Errorf("it stands at %+v", turn)
	}
	close(end)
	r.Become(b, asynq.TaskStateRetry)
	if err := queue.Close(); err != nil { // after its last look at the task
		t.Fatal(err)
	}
	if turn := r.turn(c, "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First != b {
		t.Errorf("the next one stands at %+v", turn)
	}
}

func TestATaskThatCannotJoinIsStillEnqueued(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.enqueue("warm")
	client := redis.NewClient(r.Client.Options())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(broken{"railtoken:waiters:{k}"})
	info, err := r.on(client).EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("b"))
	if !errors.Is(err, line.ErrNotInSequence) || !errors.Is(err, errBroken) || info == nil || info.ID != "b" {
		t.Fatalf("enqueueing gives %+v, %v", info, err)
	}
	for _, part := range []string{"is enqueued", "do not enqueue it again", errBroken.Error()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	b := line.Task{Queue: "default", ID: "b"}
	if got := r.State(b); got != asynq.TaskStatePending || len(r.line("k")) != 0 {
		t.Errorf("it is %v, in line are %v", got, r.line("k"))
	}
	if turn := r.turn(b, "k", line.JoinOptions{Begins: true}); turn.Ahead != 0 || len(r.line("k")) != 1 {
		t.Errorf("when it runs it stands at %+v, and in line are %v", turn, r.line("k"))
	}
	if info, err := r.on(client).EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("b")); !errors.Is(err,
		asynq.ErrTaskIDConflict) ||
		!errors.Is(err, errBroken) || errors.Is(err, line.ErrNotInSequence) || info != nil {
		t.Errorf("enqueueing it again gives %+v, %v; want a conflict, and that the line is not known", info, err)
	}
}

func TestATaskJoinsAlthoughTheCallerHasCancelled(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	ctx, cancel := context.WithCancel(t.Context())
	queue := r.between(cancel)
	if _, err := queue.EnqueueInOrder(ctx, "k", "test", nil, nil, asynq.TaskID("b")); err != nil {
		t.Fatal(err)
	}
	if got := r.line("k"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("in line are %v", got)
	}
}

// A server that has lost its scripts, as after a restart, is given them again.
func TestATaskJoinsOnAServerThatLacksTheScript(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for _, id := range []string{"a", "b"} {
		if err := r.Client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		r.enqueue("k", asynq.TaskID(id))
	}
	if got := r.line("k"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("in line are %v", got)
	}
}

func TestEnqueuingInOrderCostsTwoCalls(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.enqueue("warm")
	var calls atomic.Int32
	r.Client.AddHook(counting{&calls})
	r.enqueue("k")
	if calls.Load() != 2 {
		t.Errorf("it costs %d calls, want 2", calls.Load())
	}
}

var errBroken = errors.New("the connection broke")

// broken is a connection on which commands for a key fail.
type broken struct{ key string }

func (broken) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b broken) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), b.key) {
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}

func (b broken) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if strings.Contains(fmt.Sprint(cmd.Args()...), b.key) {
				for _, cmd := range cmds {
					cmd.SetErr(errBroken)
				}
				return errBroken
			}
		}
		return next(ctx, cmds)
	}
}
