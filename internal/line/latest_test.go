package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func price(kind, payload string) *asynq.Task {
	return asynq.NewTaskWithHeaders(kind, []byte(payload), map[string]string{"shop": "a"})
}

func TestALatestTaskWhoseReplyIsLostIsEnqueuedOnce(t *testing.T) {
	t.Parallel()
	for _, quiet := range []time.Duration{0, time.Hour} {
		r := newSolo(t)
		l := line.Latest{Record: line.RecordOf("price", []string{"a"}), Quiet: quiet, Most: 10 * quiet}
		if _, _, err := r.Engine.EnqueueLatest(t.Context(), price("price", "warm"), nil, line.Latest{Record: "other"}); err != nil {
			t.Fatal(err)
		}
		before, _, err := r.Engine.EnqueueLatest(t.Context(), price("price", "1"), nil, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, waits := range []bool{true, false} {
			key := fmt.Sprint("waits:", waits)
			if !waits { // its run has begun
				r.Begin(line.Task{Queue: before.Queue, ID: before.ID})
			}
			queue, left := r.loses("railtoken:latest:", 1)
			info, placed, err := queue.EnqueueLatest(t.Context(), price("price", "2"), []string{key}, l)
			if err != nil || left.Load() > 0 || placed.Replaced != waits || (info.ID == before.ID) != waits {
				t.Fatalf("%+v, %v: enqueued as %v, %v", placed, err, info, left.Load())
			}
			got, err := r.Inspect.GetTaskInfo(info.Queue, info.ID)
			if err != nil || string(got.Payload) != "2" || got.State != info.State || quiet > 0 && got.NextProcessAt.Sub(info.NextProcessAt).Abs() > time.Second {
				t.Errorf("waiting is %+v, %v, want %+v", got, err, info)
			}
			if got.Headers["shop"] != "a" || !strings.HasPrefix(got.Headers[line.LatestHeader], "railtoken:latest:{default}:"+l.Record+" ") ||
				!strings.HasSuffix(got.Headers[line.LatestHeader], " "+info.ID) {
				t.Errorf("its headers are %v", got.Headers)
			}
			if keys := r.Client.HGet(t.Context(), hash(line.Task{Queue: info.Queue, ID: info.ID}), "railtoken:keys").Val(); keys != key {
				t.Errorf("its keys are %q, want %q", keys, key)
			}
		}
	}
}

// Each of several processes enqueues for one key. One task waits at any time, and has the payload of the last call.
func TestOfCallsAtOnceOneTaskWaits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		const each = 30
		l := line.Latest{Record: line.RecordOf("price", []string{"a"}), Quiet: time.Hour, Most: 2 * time.Hour}
		var all sync.WaitGroup
		for p := range 4 {
			engine := r.newQueue(r.Client, line.Options{})
			all.Go(func() {
				for i := range each {
					_, placed, err := engine.EnqueueLatest(t.Context(), price("price", fmt.Sprint(p, i)), []string{"a"}, l, asynq.Queue(r.name))
					if err != nil || !placed.Replaced && i > 0 {
						t.Errorf("%+v, %v", placed, err)
					}
				}
			})
		}
		all.Wait()
		info, placed, err := r.Engine.EnqueueLatest(t.Context(), price("price", "last"), []string{"a"}, l, asynq.Queue(r.name))
		if err != nil || !placed.Replaced {
			t.Fatalf("%+v, %v", placed, err)
		}
		waiting, err := r.Inspect.ListScheduledTasks(r.name)
		if err != nil || len(waiting) != 1 || waiting[0].ID != info.ID || string(waiting[0].Payload) != "last" {
			t.Errorf("waiting are %v, %v", waiting, err)
		}
		if pending, err := r.Inspect.ListPendingTasks(r.name); err != nil || len(pending) > 0 {
			t.Errorf("pending are %v, %v", pending, err)
		}
	})
}

func TestAPayloadLeavesWhatThePayloadBeforeHasLeft(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		put := func(quiet time.Duration) *asynq.TaskInfo {
			info, _, err := r.Engine.EnqueueLatest(t.Context(), price("price", "x"), nil,
				line.Latest{Record: line.RecordOf("price", []string{"a"}), Quiet: quiet, Most: 2 * quiet}, asynq.Queue(r.name))
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		first := put(0)
		task := line.Task{Queue: first.Queue, ID: first.ID}
		r.Client.HSet(t.Context(), task.Hash(), "result", "42", "state", "retry")
		r.Client.LRem(t.Context(), "asynq:{"+r.name+"}:pending", 0, first.ID)
		r.Client.ZAdd(t.Context(), "asynq:{"+r.name+"}:retry", redis.Z{Score: 1, Member: first.ID})
		if again := put(time.Hour); again.ID != first.ID || time.Until(again.NextProcessAt) < 59*time.Minute {
			t.Errorf("after a failure it is %+v; want it to be quiet for an hour", again)
		}
		if result := r.field(task, "result"); result != "" {
			t.Errorf("the result before is %q", result)
		}
		for _, field := range []string{"railtoken:cancel", "railtoken:items"} {
			newest := put(0)
			r.Client.HSet(t.Context(), line.Task{Queue: newest.Queue, ID: newest.ID}.Hash(), field, "{}")
			if another := put(0); another.ID == newest.ID {
				t.Errorf("a task with the field %s gets a new payload", field)
			}
		}
	})
}

// It waits no longer than a task that was enqueued with this payload: its limits are counted anew.
func TestTheWaitOfANewPayloadBeginsAnew(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		latest := line.Latest{Record: line.RecordOf("price", []string{"a"})}
		put := func(opts ...asynq.Option) line.Task {
			info, _, err := r.Engine.EnqueueLatest(t.Context(), price("price", "x"), nil, latest, append(opts, asynq.Queue(r.name))...)
			if err != nil {
				t.Fatal(err)
			}
			return line.Task{Queue: info.Queue, ID: info.ID}
		}
		task := put()
		for range 3 {
			r.Park(task, "k")
		}
		r.Park(r.Delayed("b"), "k")
		before := r.wait(task)
		r.Client.HSet(t.Context(), hash(task), "railtoken:since", "1000000")
		deadline := time.Now().Add(time.Hour)
		if again := put(asynq.Deadline(deadline)); again != task {
			t.Fatalf("beside %v waits %v", task, again)
		}
		after := r.wait(task)
		if since := r.Client.HGet(t.Context(), hash(task), "railtoken:since").Val(); len(since) != len("1795874717743708") {
			t.Errorf("it counts from %s us", since)
		}
		if before.Count != 3 || after.Count != 1 || after.First.Before(before.First) || after.First.Equal(before.First) {
			t.Errorf("its conflicts are %+v, want them to begin anew after %+v", after.Conflict, before.Conflict)
		}
		if after.Place != before.Place || after.Deadline != deadline.Unix() {
			t.Errorf("its place is %d with deadline %d, want %d and %d", after.Place, after.Deadline, before.Place, deadline.Unix())
		}
		if waiting := r.Waiting("k"); !slices.Equal(waiting, []string{task.ID, "b"}) {
			t.Errorf("for its key wait %v", waiting)
		}
		if woken := r.Wake("k"); woken.First() != task {
			t.Errorf("woken is %+v", woken)
		}
	})
}

// Whatever of a call has arrived, one task waits, and the next call gives its payload to that one.
func TestACrashOfALatestCallLeavesOneTask(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		healthy, client := shared.clientOf(t, kind), shared.clientOf(t, kind)
		process := &redistest.Crash{}
		client.AddHook(process)
		for _, waits := range []bool{false, true} {
			for n, struck := 0, true; struck; n++ {
				r := newRigOn(t, kind, healthy)
				put := func(engine *line.Engine, payload string) (string, error) {
					info, _, err := engine.EnqueueLatest(t.Context(), price("price", payload), []string{"a"},
						line.Latest{Record: line.RecordOf("price", []string{"a"})}, asynq.Queue(r.name))
					if err != nil {
						return "", err
					}
					return info.ID, nil
				}
				if waits {
					if _, err := put(r.Engine, "before"); err != nil {
						t.Fatal(err)
					}
				}
				process.After(1000, false)
				queue := r.newQueue(client, line.Options{})
				process.After(n, false)
				_, err := put(queue, "crashed")
				struck = process.Struck()
				if struck == (err == nil) {
					t.Errorf("after %d commands: %v", n, err)
				}
				id, err := put(r.Engine, "last")
				if err != nil {
					t.Fatal(err)
				}
				waiting, err := r.Inspect.ListPendingTasks(r.name)
				if err != nil || len(waiting) != 1 || waiting[0].ID != id || string(waiting[0].Payload) != "last" {
					t.Errorf("after %d commands wait %v, %v", n, waiting, err)
				}
			}
		}
	}
}

// A call that fails before its script is sent does not become an ordinary one.
func TestALatestCallWithoutAnAnswerEnqueuesNothing(t *testing.T) {
	t.Parallel()
	client := shared.clientOf(t, "cluster")
	client.AddHook(lossy(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
		if cmds[0].Name() == "hget" { // it asks for the task that waits
			return redistest.Fail(cmds[0], errAway)
		}
		return next()
	}))
	r := newRigOn(t, "cluster", shared.clientOf(t, "cluster"))
	queue := r.newQueue(client, line.Options{})
	_, _, err := queue.EnqueueLatest(t.Context(), price("price", "1"), []string{"a"}, line.Latest{Record: line.RecordOf("price", nil)}, asynq.Queue(r.name))
	if pending, wrong := r.Inspect.ListPendingTasks(r.name); !errors.Is(err, errAway) || len(pending) > 0 {
		t.Errorf("%v; pending are %v, %v", err, pending, wrong)
	}
}

// twice is a client whose scripts are sent again after something else has happened: their first answers are lost.
type twice struct {
	redis.Hook

	meanwhile func()
}

func (h *twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); cmd.Name() != "evalsha" || h.meanwhile == nil {
			return err
		}
		h.meanwhile()
		return next(ctx, cmd)
	}
}

// The call was carried out before the others, whenever its answer arrives.
func TestACallThatIsSentAgainAfterOthersChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		latest := line.Latest{Record: line.RecordOf("price", []string{"a"})}
		put := func(engine *line.Engine, payload string) (*asynq.TaskInfo, line.Placed) {
			info, placed, err := engine.EnqueueLatest(t.Context(), price("price", payload), nil, latest, asynq.Queue(r.name))
			if err != nil {
				t.Fatal(err)
			}
			return info, placed
		}
		first, _ := put(r.Engine, "1")
		client, others := shared.clientOf(t, r.on), 0
		queue := r.newQueue(client, line.Options{})
		client.AddHook(&twice{meanwhile: func() {
			for ; others < 3; others++ {
				put(r.Engine, fmt.Sprint("other", others))
			}
			r.Begin(line.Task{Queue: first.Queue, ID: first.ID})
		}})
		info, placed := put(queue, "2")
		if others != 3 || info.ID != first.ID || !placed.Replaced {
			t.Errorf("enqueued as %+v, %+v, after %d others", info, placed, others)
		}
		got, err := r.Inspect.GetTaskInfo(first.Queue, first.ID)
		if err != nil || string(got.Payload) != "other2" {
			t.Errorf("it is %+v, %v", got, err)
		}
		if waiting, err := r.Inspect.ListPendingTasks(r.name); err != nil || len(waiting) > 0 {
			t.Errorf("beside it wait %v, %v", waiting, err)
		}
	})
}

// A record that was lost is kept for as long as others once a run has begun.
func TestARunThatBeginsIsNoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	record := "railtoken:latest:{" + r.name + "}:" + line.RecordOf("price", []string{"a"})
	for _, tt := range []struct {
		id, number string
		by         line.Task
	}{
		{"first", "1", line.Task{}}, {"third", "3", line.Task{}}, {"third", "3", line.Task{}}, {"second", "2", r.task("third")},
	} {
		by, err := line.BeginLatest(t.Context(), r.Engine, r.task(tt.id), record+" "+tt.number+" "+tt.id)
		if err != nil || by != tt.by {
			t.Errorf("%s: superseded by %v, %v; want %v", tt.id, by, err, tt.by)
		}
		if left := r.Client.PTTL(t.Context(), record).Val(); left < time.Minute {
			t.Errorf("%s: the record stays for %v", tt.id, left)
		}
	}
	r.Client.PExpire(t.Context(), record, 30*time.Second)
	if _, err := line.BeginLatest(t.Context(), r.Engine, r.task("fourth"), record+" 4 fourth"); err != nil {
		t.Fatal(err)
	}
	if left := r.Client.PTTL(t.Context(), record).Val(); left > 30*time.Second {
		t.Errorf("a record that is kept stays for %v then", left)
	}
}
