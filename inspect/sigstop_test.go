package inspect_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/doctor"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestStoppedHolderIsDeposed(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		deposeStopped(t, nil, attach.Options{}, func() {})
	})
	t.Run("five servers, one of them dead", func(t *testing.T) {
		t.Parallel()
		nodes, servers := redlockNodes(t, 5)
		var addrs []string
		for _, o := range nodes {
			addrs = append(addrs, o.Addr)
		}
		locker, err := redlockOf(addrs)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locker.Close() })
		deposeStopped(t, addrs, attach.Options{Locker: locking.NewGate(locker, locking.GateOptions{})}, servers[4].Kill)
	})
}

// A worker that is stopped sends no heartbeat any more. It has sent the last one up to 5 s before.
func TestAStoppedWorkerIsReportedWithin20Seconds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	i := newInspector(t, inspect.Options{Tasks: client})
	r := &rig{t, server, client, asynq.NewClientFromRedisClient(client), i}
	r.serve(attach.Options{}, func(context.Context, *asynq.Task) error { return nil })
	victim := startChild(t, server.Addr(), nil)
	if _, err := r.tasks.Enqueue(asynq.NewTask("t", []byte("k")), asynq.Queue("child"), asynq.TaskID("held")); err != nil {
		t.Fatal(err)
	}
	victim.line("holds")
	r.enqueue("k", "next")
	task := delayqueue.Task{Queue: "child", ID: "held"}
	look := func() explain.Explanation {
		e, err := explain.Task(t.Context(), explain.Options{Tasks: client, Inspector: i}, task)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	r.eventually("the task is explained with its key and waiter", func() bool {
		e := look()
		return e.Cause == explain.Running && strings.Contains(e.Why, "holds key k") && strings.Contains(e.Why, "one task waits")
	})
	victim.stop()
	stopped := time.Now()
	var e explain.Explanation
	r.eventually("the worker is silent", func() bool { e = look(); return e.Cause == explain.WorkerSilent })
	if took := time.Since(stopped); took > 20*time.Second {
		t.Errorf("that is said after %v", took)
	}
	pid := strconv.Itoa(victim.cmd.Process.Pid)
	if !strings.Contains(e.Why, "/"+pid+", which has not been heard of for") || !strings.Contains(e.Why, "holds key k") || e.Remedy == "" {
		t.Errorf("it is explained by %q, %q", e.Why, e.Remedy)
	}
	waiter := delayqueue.Task{Queue: "default", ID: "next"}
	waits, err := explain.Task(t.Context(), explain.Options{Tasks: client, Inspector: i}, waiter)
	if err != nil || waits.Cause != explain.Held || !slices.Contains(waits.Also, explain.WorkerSilent) || waits.HolderTask != "child/held" ||
		!strings.Contains(waits.Why, "/"+pid+", which has not been heard of for") || !strings.Contains(waits.Remedy, "railtoken depose k --why REASON") {
		t.Errorf("the waiter is explained by %+v, %v", waits, err)
	}
	if k, err := i.Look(t.Context(), "k", 0); err != nil || k.Holder == nil || k.Holder.Silent < 15*time.Second || k.Holder.Running != task {
		t.Errorf("the key is looked at: %+v, %v", k.Holder, err)
	}
	report, err := doctor.Examine(t.Context(), doctor.Sources{Tasks: client, Inspector: i})
	if err != nil || !slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool {
		return f.Check == "stuck" && f.Where == "task child/held" && strings.Contains(f.What, "has not been heard of for")
	}) {
		t.Errorf("the doctor finds %+v, %v", report.Findings, err)
	}
}

// soon is well before the holder's lock expires and the waiting task's own timer fires, after about 30 s. The next holder
// usually begins after 5 ms.
const soon = 5 * time.Second

// deposeStopped deposes the holder of a key in a process that is stopped, while a task of this process waits for the
// key. kill is called while the holder works. The next holder must begin because of the command.
func deposeStopped(t *testing.T, nodes []string, opts attach.Options, kill func()) {
	t.Helper()
	ctx := t.Context()
	server := redistest.Start(t)
	client := server.Client(t)
	i := newInspector(t, inspect.Options{
		Tasks: client, Nodes: optionsOf(nodes), Redlock: locking.RedlockOptions{Guard: locking.GuardOff},
	})
	r := &rig{t, server, client, asynq.NewClientFromRedisClient(client), i}
	began := make(chan time.Time, 1)
	proceed := make(chan struct{})
	r.serve(opts, func(context.Context, *asynq.Task) error {
		began <- time.Now()
		<-proceed
		return nil
	})
	victim := startChild(t, server.Addr(), nodes)
	if _, err := r.tasks.Enqueue(asynq.NewTask("t", []byte("k")), asynq.Queue("child"), asynq.MaxRetry(0)); err != nil {
		t.Fatal(err)
	}
	token, err := strconv.ParseInt(victim.line("holds"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	r.enqueue("k", "next")
	var k inspect.KeyState
	r.eventually("the next task waits", func() bool {
		if k, err = i.Look(ctx, "k", 1); err != nil {
			t.Fatal(err)
		}
		return k.Waiting == 1 && len(k.Waiters) == 1 && k.Waiters[0].State == "retry"
	})
	victim.stop()
	res, landed := resource{client}, 0
	commanded := time.Now()
	floor, err := i.Depose(ctx, "k", inspect.Deposition{
		Expect: k.Holder.Owner, By: "ann", Why: "it hangs",
		Floor: func(ctx context.Context, floor int64) error {
			if len(began) > 0 {
				return errors.New("the next holder was there before")
			}
			if ok, err := res.claim(ctx, floor); err != nil || !ok {
				return errors.Join(err, errors.New("the resource has seen a larger token"))
			}
			landed, err = res.writes(ctx, token)
			return err
		},
	})
	if err != nil || floor <= token {
		t.Fatalf("the floor is %d above the token %d, %v", floor, token, err)
	}
	select {
	case at := <-began:
		took := at.Sub(commanded)
		t.Logf("the next holder began %v after the command", took)
		if took > soon {
			t.Errorf("that is later than %v", soon)
		}
	case <-time.After(limit):
		t.Fatal("the next holder does not come")
	}
	victim.proceed()
	if cause := victim.line("cause"); cause != "deposed by ann: it hangs true" {
		t.Errorf("the cause is %q", cause)
	}
	if late := victim.line("landed"); late != "0" {
		t.Errorf("%s writes landed after the end of the lease", late)
	}
	if n, err := res.writes(ctx, token); err != nil || n != landed || n == 0 {
		t.Errorf("%d writes landed before, %d in all, %v", landed, n, err)
	}
	if k, err = i.Look(ctx, "k", 1); err != nil || k.Holder == nil || k.Holder.Fence <= floor {
		t.Errorf("the next holder is %+v, above the floor %d? %v", k.Holder, floor, err)
	}
	close(proceed)
}
