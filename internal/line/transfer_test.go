package line_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// transfer parks a task in another queue.
func (r *solo) transfer(t line.Task, opts line.ParkOptions) line.Parked {
	r.Helper()
	r.Begin(t)
	opts.Queue, opts.RetryAfter = "low", time.Hour
	place, err := r.Engine.Park(r.Context(), t, "k", opts.Of("run"))
	r.OK(err)
	return place
}

// everywhere returns the queues in which asynq has a task with an ID, once for each list.
func (r *solo) everywhere(id string) (places []string) {
	r.Helper()
	for _, queue := range []string{"default", "low"} {
		prefix := "asynq:{" + queue + "}:"
		for _, list := range []string{"pending", "active"} {
			if slices.Contains(r.Client.LRange(r.Context(), prefix+list, 0, -1).Val(), id) {
				places = append(places, queue+" "+list)
			}
		}
		for _, set := range []string{"retry", "scheduled", "archived", "lease"} {
			if r.Client.ZScore(r.Context(), prefix+set, id).Err() == nil {
				places = append(places, queue+" "+set)
			}
		}
	}
	return places
}

func TestATransferKeepsTheTaskWhole(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	unique := asynq.Unique(time.Hour)
	task := r.Delayed("a", unique, asynq.MaxRetry(3), asynq.Retention(time.Hour), asynq.Timeout(time.Minute))
	at := r.turn(task, "k", line.JoinOptions{}).At
	r.Park(task, "k")
	there := line.Task{Queue: "low", ID: "a"}
	for range 2 { // the second is repeated, as after a lost reply
		place := r.transfer(task, line.ParkOptions{})
		if place.Task != there || place.Count != 2 || place.Waiters != 1 ||
			place.Timer.Round(10*time.Second) != time.Hour {
			t.Errorf("%+v", place)
		}
	}
	if got := r.everywhere("a"); !slices.Equal(got, []string{"low retry"}) {
		t.Errorf("it is in %v", got)
	}
	info, err := r.Inspect.GetTaskInfo("low", "a")
	if err != nil || info.Queue != "low" || info.MaxRetry != 3 || info.Retried != 0 || info.Retention != time.Hour ||
		info.Timeout != time.Minute || info.State != asynq.TaskStateRetry {
		t.Errorf("asynq has %+v, %v", info, err)
	}
	if _, err := r.Inspect.GetTaskInfo("default", "a"); !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Errorf("its former queue has it still: %v", err)
	}
	if queues, err := r.Inspect.Queues(); err != nil || !slices.Contains(queues, "low") {
		t.Errorf("asynq lists %v, %v", queues, err)
	}
	if w, err := r.inspector().Find(t.Context(), delayqueue.Task(there)); err != nil || w.Key != "k" ||
		w.Position != 1 || w.Conflicts != 2 {
		t.Errorf("%+v, %v", w, err)
	}
	if n, err := r.inspector().Count(t.Context()); err != nil || n != 1 {
		t.Errorf("%d wait, %v", n, err)
	}
	if turn := r.turn(there, "k", line.JoinOptions{}); turn.Ahead != 0 || !turn.At.Equal(at) ||
		len(r.line("k")) != 1 {
		t.Errorf("in sequence it stands at %+v, want %v; in it are %v", turn, at, r.line("k"))
	}
	duplicate := func() error {
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), unique, asynq.ProcessIn(time.Hour))
		return err
	}
	if err := duplicate(); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("a duplicate gives %v", err)
	}
	if woken := r.Wake("k"); woken.First() != there {
		t.Errorf("woke %+v", woken)
	}
	ran := make(chan string, 1)
	linetest.Serve(t, r.Engine, asynq.Config{Queues: map[string]int{"low": 1}},
		func(_ context.Context, id string) error { ran <- id; return nil })
	receive(t, ran)
	r.Become(there, asynq.TaskStateCompleted)
	if err := duplicate(); err != nil {
		t.Errorf("its uniqueness lock is left: %v", err)
	}
}

func TestATakenIDPreventsTheTransfer(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	other := r.Delayed("a", asynq.Queue("low"))
	task := r.Delayed("a")
	if place := r.transfer(task, line.ParkOptions{}); place.Task != task {
		t.Errorf("%+v", place)
	}
	if got := r.everywhere("a"); !slices.Equal(got, []string{"default retry", "low scheduled"}) {
		t.Errorf("they are in %v", got)
	}
	if woken := r.Wake("k"); woken.First() != task {
		t.Errorf("woke %+v", woken)
	}
	if info, err := r.Inspect.GetTaskInfo(other.Queue, other.ID); err != nil ||
		info.State != asynq.TaskStateScheduled || info.Queue != "low" {
		t.Errorf("the other one is %+v, %v", info, err)
	}
}

func TestATaskThatFindsNoRoomIsTransferredToo(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]line.ParkOptions{"waiters": {MaxWaiters: 1}, "total": {MaxTotal: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			r.Park(r.Delayed("waits"), "k")
			place := r.transfer(r.Delayed("a"), limits)
			if len(waitOf(t, r.Client, line.Task{Queue: "low", ID: "a"}).Keys) > 0 ||
				place.Task.Queue != "low" || place.Waiters != 1 {
				t.Errorf("%+v", place)
			}
			if got := r.everywhere("a"); !slices.Equal(got, []string{"low retry"}) {
				t.Errorf("it is in %v", got)
			}
			if queues, err := r.Inspect.Queues(); err != nil || !slices.Contains(queues, "low") {
				t.Errorf("asynq lists %v, %v", queues, err)
			}
			if n, err := r.inspector().Count(t.Context()); err != nil || n != 1 {
				t.Errorf("%d wait, %v", n, err)
			}
		})
	}
}

func TestATaskThatMayRunIsNotTransferred(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("a")
	if place := r.transfer(task, line.ParkOptions{Locks: lockKeys}); !place.Free || place.Task != task {
		t.Errorf("%+v", place)
	}
	if got := r.everywhere("a"); !slices.Equal(got, []string{"default pending"}) {
		t.Errorf("it is in %v", got)
	}
}

// Whoever follows a task to the queue where it waits looks in the queues that asynq lists.
func TestAQueueIsListedBeforeATaskMovesThere(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("a")
	listed := false
	r.Client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(cmd.Args(), any("asynq:{low}:retry")) {
			listed = r.Client.SIsMember(ctx, "asynq:queues", "low").Val()
		}
		return next(ctx, cmd)
	}))
	if place := r.transfer(task, line.ParkOptions{}); place.Task.Queue != "low" || !listed {
		t.Errorf("it is in %s, which was listed before: %t", place.Task.Queue, listed)
	}
}
