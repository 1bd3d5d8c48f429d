package line_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
)

// parks has the run of a task end in its wait for k, and returns what it has told asynq.
func (r *solo) parks(ctx context.Context, parked chan line.Parked) error {
	r.Helper()
	task, err := line.TaskOf(ctx)
	if err != nil {
		return err
	}
	run, err := r.Engine.Run(task)
	if err != nil {
		return err
	}
	run.Park("k", line.ParkOptions{RetryAfter: time.Hour}, func(p line.Parked) { parked <- p })
	run.End(ctx)
	return errRefused
}

// uncounted fails the test when a day of asynq's has counted something in the queue.
func (r *solo) uncounted() {
	r.Helper()
	if q, err := r.Inspect.GetQueueInfo("default"); err != nil ||
		q.Processed+q.Failed+q.ProcessedTotal+q.FailedTotal != 0 {
		r.Errorf("asynq has counted %+v, %v", q, err)
	}
}

// refusesDuplicates fails the test when the uniqueness lock of a task ends before it has waited for so long.
func (r *solo) refusesDuplicates(t line.Task, wait time.Duration) {
	r.Helper()
	lock := r.Client.HGet(r.Context(), "asynq:{"+t.Queue+"}:t:"+t.ID, "unique_key").Val()
	if left := r.Client.PTTL(r.Context(), lock).Val(); left < wait+time.Minute {
		r.Errorf("its uniqueness lock %q ends in %v", lock, left)
	}
}

// Whatever asynq makes of the end of a run, the task waits, and no count moves.
func TestATaskWaitsHoweverAsynqEndsIt(t *testing.T) {
	t.Parallel()
	counts := asynq.Config{IsFailure: func(error) bool { return true }}
	done, swallowed := func(error) error { return nil }, "swallowed its error"
	for name, tt := range map[string]struct {
		opts  []asynq.Option
		cfg   asynq.Config
		ends  func(error) error
		wants string // in the text of its last error
		says  string // in the log; nothing is said when empty
	}{
		"retried": {opts: []asynq.Option{asynq.MaxRetry(3)}, wants: line.WaitText},
		"retried, and unique, a last": {
			opts:  []asynq.Option{asynq.MaxRetry(0), asynq.Unique(time.Hour)},
			wants: line.WaitText,
		},
		"counted": {
			opts: []asynq.Option{asynq.MaxRetry(3)}, cfg: counts,
			says: "start the server with the Config of attach.Attached",
		},
		"counted, and unique": {
			opts: []asynq.Option{asynq.MaxRetry(3), asynq.Unique(time.Hour)}, cfg: counts,
			says: "start the server with the Config of attach.Attached",
		},
		"archived":             {opts: []asynq.Option{asynq.MaxRetry(0)}, wants: line.WaitText},
		"archived and counted": {opts: []asynq.Option{asynq.MaxRetry(0)}, cfg: counts, wants: line.WaitText},
		"archived early": {
			ends:  func(err error) error { return errors.Join(err, asynq.SkipRetry) },
			wants: line.WaitText,
		},
		"revoked": {
			ends: func(err error) error { return errors.Join(err, asynq.RevokeTask) },
			says: swallowed,
		},
		"done":             {ends: done, says: swallowed},
		"done, and unique": {opts: []asynq.Option{asynq.Unique(time.Hour)}, ends: done, says: swallowed},
		"completed":        {opts: []asynq.Option{asynq.Retention(time.Hour)}, ends: done, says: swallowed},
		"completed, and unique": {
			opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)},
			ends: done, says: swallowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			log := new(bytes.Buffer)
			queue, err := line.New(r.Client, line.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			r.OK(err)
			t.Cleanup(func() { _ = queue.Close() })
			r.Engine = queue
			parked := make(chan line.Parked, 10)
			linetest.Serve(t, r.Engine, tt.cfg, func(ctx context.Context, _ string) error {
				err := r.parks(ctx, parked)
				if tt.ends != nil {
					err = tt.ends(err)
				}
				return err
			})
			info, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), append(tt.opts, asynq.TaskID("a"))...)
			r.OK(err)
			task := line.Task{Queue: "default", ID: "a"}
			if place := receive(t, parked); place.Task != task || place.Count != 1 || place.Waiters != 1 || place.Free {
				t.Errorf("%+v", place)
			}
			got, err := r.Inspect.GetTaskInfo("default", "a")
			if err != nil || got.State != asynq.TaskStateRetry || got.Retried != 0 || got.MaxRetry != info.MaxRetry ||
				!strings.Contains(got.LastErr, tt.wants) {
				t.Errorf("asynq has %+v, %v", got, err)
			}
			if lists := r.everywhere("a"); !slices.Equal(lists, []string{"default retry"}) {
				t.Errorf("it is in %v", lists)
			}
			if got := r.Waiting("k"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("in line are %v", got)
			}
			r.uncounted()
			if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil),
				append(tt.opts, asynq.TaskID("a"))...); err == nil {
				t.Error("another one with its ID was accepted")
			}
			if strings.Contains(name, "unique") {
				if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), tt.opts...); !errors.Is(err,
					asynq.ErrDuplicateTask) {
					t.Errorf("a duplicate gives %v", err)
				}
				r.refusesDuplicates(task, time.Hour)
			}
			r.Until("the run is forgotten", func() bool { return r.Engine.Runs() == 0 })
			if tt.says == "" && log.Len() > 0 || !strings.Contains(log.String(), tt.says) {
				t.Errorf("the log says %q, want %q", log, tt.says)
			}
		})
	}
}

func TestOtherEndsOfRunsAreAsynqsOwn(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	linetest.Serve(t, r.Engine, asynq.Config{IsFailure: func(error) bool { return true }},
		func(_ context.Context, id string) error {
			switch id {
			case "done":
				return nil
			case "archived":
				return asynq.SkipRetry
			default:
				return errors.New("it failed")
			}
		})
	for id, want := range map[string]asynq.TaskState{
		"done":     asynq.TaskStateCompleted,
		"archived": asynq.TaskStateArchived, "failed": asynq.TaskStateRetry,
	} {
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(id), asynq.Retention(time.Hour),
			asynq.MaxRetry(3))
		r.OK(err)
		r.Become(line.Task{Queue: "default", ID: id}, want)
	}
	if info, err := r.Inspect.GetTaskInfo("default", "failed"); err != nil || info.Retried != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	r.Until("no run is remembered", func() bool { return r.Engine.Runs() == 0 })
}

// A server that shuts down puts its tasks back: another one may try the key at once.
func TestARequeuedTaskDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	began, end := make(chan struct{}), make(chan struct{})
	server := linetest.Serve(t, r.Engine, asynq.Config{}, func(ctx context.Context, _ string) error {
		err := r.parks(ctx, make(chan line.Parked, 1))
		close(began)
		<-end
		return err
	})
	defer close(end)
	_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"), asynq.MaxRetry(0))
	r.OK(err)
	receive(t, began)
	server.Shutdown()
	if lists := r.everywhere("a"); !slices.Equal(lists, []string{"default pending"}) {
		t.Errorf("it is in %v", lists)
	}
	if got := r.Waiting("k"); len(got) != 0 {
		t.Errorf("in line are %v", got)
	}
	if n := r.Engine.Runs(); n != 0 {
		t.Errorf("%d runs are remembered", n)
	}
}

// What a task has met comes with it from its fetch, and counts until its handler has run.
func TestARunKnowsWhatItsTaskHasMet(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	met, parked := make(chan line.Conflict, 10), make(chan line.Parked, 10)
	r.Serve(1, func(ctx context.Context, id string) error {
		run, err := r.Engine.Run(line.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		met <- run.Met(0)
		if c := run.Met(1); c != (line.Conflict{}) {
			t.Errorf("at another attempt it has met %+v", c)
		}
		return r.parks(ctx, parked)
	})
	_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a"))
	r.OK(err)
	var first line.Parked
	for n := range 3 {
		c := receive(t, met)
		place := receive(t, parked)
		if n == 0 {
			first = place
		}
		if c.Count != n || n > 0 && !c.First.Equal(first.First) || place.Count != n+1 {
			t.Errorf("run %d has met %+v, and parks as %+v", n+1, c, place)
		}
		r.Wake("k")
	}
}

func TestARunOfAnotherServerIsNotOurs(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Begin(r.Delayed("a"))
	if run, err := r.Engine.Run(task); !errors.Is(err, line.ErrNotOurs) || run != nil {
		t.Errorf("%v, %v", run, err)
	}
}

// What a server has to say is in the log of its engine, unless it has its own.
func TestAConnLogsWhereItsEngineDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	for _, own := range []bool{false, true} {
		var engines, conns bytes.Buffer
		e := r.newQueue(r.Client, line.Options{Logger: slog.New(slog.NewTextHandler(&engines, nil))})
		opts := broker.Options{Queues: map[string]int{r.name: 1}, Interval: time.Hour}
		if own {
			opts.Logger = slog.New(slog.NewTextHandler(&conns, nil))
		}
		prefix := r.task("").Prefix()
		err := e.Conn(opts).EvalSha(t.Context(), "1234", []string{prefix + "pending", prefix + "paused", prefix + "active", prefix + "lease"}).Err()
		const says = "a script that railtoken does not recognise"
		if !errors.Is(err, broker.ErrAsynq) || strings.Contains(conns.String(), says) != own || strings.Contains(engines.String(), says) == own {
			t.Errorf("%v; the log of the engine is %q, and its own %q", err, &engines, &conns)
		}
	}
}
