package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// enqueue enqueues a task in line.
func (r *solo) enqueue(key string, opts ...asynq.Option) (delayqueue.Task, map[string]string) {
	r.Helper()
	info, err := r.queue.Enqueue(r.Context(), key, asynq.NewTaskWithHeaders("test", []byte("payload"), map[string]string{"tenant": "7"}), opts...)
	if err != nil {
		r.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}, info.Headers
}

// line returns the IDs of the tasks in the line of a key.
func (r *solo) line(key string) []string {
	r.Helper()
	members := r.client.ZRange(r.Context(), "railtoken:line:{"+key+"}", 0, -1).Val()
	ids := []string{}
	for _, m := range members {
		ids = append(ids, m[strings.LastIndex(m, "/")+1:])
	}
	return ids
}

func TestAnEnqueuedTaskHasAPlaceBeforeItRuns(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	first, headers := r.enqueue("k", asynq.Queue("slow"), asynq.TaskID("first"))
	second, _ := r.enqueue("k")
	if first != (delayqueue.Task{Queue: "slow", ID: "first"}) || second.Queue != "default" || second.ID == "" {
		t.Errorf("enqueued %s and %s", first, second)
	}
	info, err := r.inspect.GetTaskInfo("slow", "first")
	if err != nil || string(info.Payload) != "payload" || info.Headers["tenant"] != "7" || info.State != asynq.TaskStatePending {
		t.Errorf("asynq has %+v, %v", info, err)
	}
	if turn := r.turn(second, "k", delayqueue.TurnOptions{}); turn.Ahead != 1 || turn.First != first || turn.FirstState != "pending" {
		t.Errorf("the second stands at %+v", turn)
	}
	turn := r.turn(first, "k", delayqueue.TurnOptions{})
	at, ok := delayqueue.PlaceOf(first, "k", headers)
	if !ok || turn.Ahead != 0 || !at.Equal(turn.At) {
		t.Errorf("its headers say %v (%v), its turn is %+v", at, ok, turn)
	}
}

func TestAPlaceCountsForItsOwnTaskAndKeyOnly(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task, headers := r.enqueue("a key {%}")
	for _, other := range []delayqueue.Task{{Queue: task.Queue, ID: "child"}, {Queue: "other", ID: task.ID}} {
		if at, ok := delayqueue.PlaceOf(other, "a key {%}", headers); ok {
			t.Errorf("%s, to which the headers were handed on, has the place %v", other, at)
		}
	}
	if at, ok := delayqueue.PlaceOf(task, "another key", headers); ok {
		t.Errorf("it has the place %v in the line of another key", at)
	}
	if _, ok := delayqueue.PlaceOf(task, "a key {%}", headers); !ok {
		t.Error("it has no place in its own line")
	}
	// A child that is itself enqueued in line has its own place.
	info, err := r.queue.Enqueue(t.Context(), "a key {%}", asynq.NewTaskWithHeaders("test", nil, headers))
	if err != nil {
		t.Fatal(err)
	}
	child := delayqueue.Task{Queue: info.Queue, ID: info.ID}
	at, ok := delayqueue.PlaceOf(child, "a key {%}", info.Headers)
	if mine, _ := delayqueue.PlaceOf(task, "a key {%}", headers); !ok || !at.After(mine) {
		t.Errorf("the child has the place %v (%v), its parent %v", at, ok, mine)
	}
}

func TestAMovedTaskHasThePlaceOfItsOriginal(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task, headers := r.enqueue("k")
	copied := r.move(task, headers, 3)
	want, _ := delayqueue.PlaceOf(task, "k", headers)
	if at, ok := delayqueue.PlaceOf(copied, "k", r.headers(copied)); !ok || !at.Equal(want) {
		t.Errorf("it has the place %v (%v), its original %v", at, ok, want)
	}
}

func TestForeignHeadersGiveNoPlace(t *testing.T) {
	t.Parallel()
	task := delayqueue.Task{Queue: "q", ID: "id"}
	for _, value := range []string{
		"", "1", "1 n k", "x n k 1:qid", "0 n k 1:qid", "-1 n k 1:qid", "99999999999999999 n k 1:qid", "1 n k 1:qi", "1 n l 1:qid", "1 n k 1:qid ",
	} {
		if at, ok := delayqueue.PlaceOf(task, "k", map[string]string{"Railtoken-Place": value}); ok {
			t.Errorf("%q is taken for the place %v", value, at)
		}
	}
	if at, ok := delayqueue.PlaceOf(task, "k", map[string]string{"Railtoken-Place": "1 n k 1:qid"}); !ok || at.UnixMicro() != 1 {
		t.Errorf("the well-formed one is read as %v, %v", at, ok)
	}
}

// Options may be given to the task or to Enqueue, as with asynq's client; what asynq keeps of them is the same.
func TestOptionsComeToTheSameAsWithAsynq(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct{ inTask, inCall []asynq.Option }{
		"none":      {},
		"in task":   {inTask: []asynq.Option{asynq.Queue("a"), asynq.MaxRetry(0), asynq.Timeout(time.Minute), asynq.Deadline(deadline), asynq.Retention(time.Hour), asynq.Unique(time.Minute)}},
		"in call":   {inCall: []asynq.Option{asynq.Queue("b"), asynq.MaxRetry(7), asynq.Deadline(deadline), asynq.Unique(2 * time.Minute)}},
		"both":      {inTask: []asynq.Option{asynq.Queue("c"), asynq.MaxRetry(7)}, inCall: []asynq.Option{asynq.MaxRetry(3), asynq.Timeout(time.Hour)}},
		"scheduled": {inTask: []asynq.Option{asynq.ProcessIn(time.Hour)}, inCall: []asynq.Option{asynq.Queue("d"), asynq.Unique(time.Minute)}},
		"grouped":   {inTask: []asynq.Option{asynq.Group("g")}, inCall: []asynq.Option{asynq.Queue("e")}},
	} {
		mine, err := r.queue.Enqueue(t.Context(), name, asynq.NewTask("test", []byte(name), c.inTask...), c.inCall...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		theirs, err := r.tasks.Enqueue(asynq.NewTask("test", []byte(name+"2"), c.inTask...), c.inCall...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := func(info *asynq.TaskInfo) string {
			info, err := r.inspect.GetTaskInfo(info.Queue, info.ID)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lock := r.client.HGet(t.Context(), "asynq:{"+info.Queue+"}:t:"+info.ID, "unique_key").Val()
			ttl := time.Duration(0)
			if lock != "" {
				ttl = r.client.TTL(t.Context(), lock).Val().Round(time.Minute)
			}
			return fmt.Sprint(info.Queue, info.MaxRetry, info.Timeout, info.Deadline, info.Retention, info.Group, info.State, ttl,
				time.Until(info.NextProcessAt).Round(time.Minute))
		}
		if got, want := kept(mine), kept(theirs); got != want {
			t.Errorf("%s: asynq keeps %s, without a line %s", name, got, want)
		}
		_, placed := delayqueue.PlaceOf(delayqueue.Task{Queue: mine.Queue, ID: mine.ID}, name, r.headers(delayqueue.Task{Queue: mine.Queue, ID: mine.ID}))
		inLine := r.client.Exists(t.Context(), "railtoken:line:{"+strings.ReplaceAll(name, " ", "%20")+"}").Val() == 1
		if want := mine.State == asynq.TaskStatePending; placed != want || inLine != want {
			t.Errorf("%s: has a place %v, is in line %v, want %v", name, placed, inLine, want)
		}
	}
}

func TestOptionsThatAsynqRefusesLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for _, opt := range []asynq.Option{asynq.Queue(" "), asynq.TaskID(" "), asynq.Unique(time.Millisecond), asynq.Group("")} {
		if _, err := r.queue.Enqueue(t.Context(), "k", asynq.NewTask("test", nil), opt); err == nil {
			t.Errorf("%v was accepted", opt)
		}
	}
	for _, task := range []*asynq.Task{nil, asynq.NewTask("", nil)} {
		if _, err := r.queue.Enqueue(t.Context(), "k", task); err == nil {
			t.Errorf("%v was accepted", task)
		}
	}
	if n := r.client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left behind", n)
	}
}

func TestATaskIsEnqueuedOnceUnderItsID(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task, headers := r.enqueue("k", asynq.TaskID("id"))
	for _, key := range []string{"k", "another"} {
		if _, err := r.queue.Enqueue(t.Context(), key, asynq.NewTask("test", nil), asynq.TaskID("id")); !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("a second one for %q gives %v", key, err)
		}
	}
	if n := r.client.Exists(t.Context(), "railtoken:line:{another}").Val(); n != 0 {
		t.Error("the refused one is in the line of its key")
	}
	at, _ := delayqueue.PlaceOf(task, "k", headers)
	if turn := r.turn(task, "k", delayqueue.TurnOptions{}); !turn.At.Equal(at) {
		t.Errorf("the refused one cost the first its place: %+v, want %v", turn, at)
	}
}

func TestARefusedTaskDoesNotCostAnotherThePlaceThatItTookWhenItRan(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.delayed("id")
	r.turn(task, "k", delayqueue.TurnOptions{})
	if _, err := r.queue.Enqueue(t.Context(), "k", asynq.NewTask("test", nil), asynq.TaskID("id")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("a second one gives %v", err)
	}
	later, _ := r.enqueue("k")
	if turn := r.turn(later, "k", delayqueue.TurnOptions{}); turn.Ahead != 1 || turn.First != task {
		t.Errorf("a later one stands at %+v", turn)
	}
}

func TestARefusedDuplicateLeavesTheLineAsItWas(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.enqueue("k", asynq.Unique(time.Minute))
	before := r.line("k")
	if _, err := r.queue.Enqueue(t.Context(), "k", asynq.NewTask("test", []byte("payload")), asynq.Unique(time.Minute)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("a duplicate gives %v", err)
	}
	if after := r.line("k"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("in line are %v, before %v", after, before)
	}
}

// A task that parked behind an entry that is taken back would wait for its timer, or forever.
func TestWhoParkedBehindARefusedTaskIsWoken(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.delayed("taken")
	behind := r.delayed("behind")
	joined := false
	r.client.AddHook(before(func(cmd redis.Cmder) {
		if !joined && len(cmd.Args()) > 7 && cmd.Args()[3] == "asynq:{default}:t:taken" { // between its joining and asynq's script
			joined = true
			if turn := r.turn(behind, "k", delayqueue.TurnOptions{}); turn.Ahead != 1 {
				t.Errorf("the task behind stands at %+v", turn)
			}
			r.park(behind, "k")
		}
	}))
	if _, err := r.queue.Enqueue(t.Context(), "k", asynq.NewTask("test", nil), asynq.TaskID("taken")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Fatalf("a conflict gives %v", err)
	}
	if !joined {
		t.Fatal("nobody came between")
	}
	r.become(behind, asynq.TaskStatePending)
}

// Two producers enqueue a task with one ID. The entry is made by the one that is refused.
func TestARefusedTaskLeavesItsPlaceToTheOneThatHasItsID(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	other := redis.NewClient(r.client.Options())
	t.Cleanup(func() { _ = other.Close() })
	queue, err := delayqueue.New(other, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	var came *asynq.TaskInfo
	other.AddHook(before(func(cmd redis.Cmder) {
		if came == nil && len(cmd.Args()) > 7 && cmd.Args()[3] == "asynq:{default}:t:id" { // between its joining and asynq's script
			if came, err = r.queue.Enqueue(t.Context(), "k", asynq.NewTask("test", nil), asynq.TaskID("id")); err != nil {
				t.Error(err)
			}
		}
	}))
	if info, err := queue.Enqueue(t.Context(), "k", asynq.NewTask("test", nil), asynq.TaskID("id")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("the one that came second gets %+v, %v", info, err)
	}
	later, _ := r.enqueue("k")
	if turn := r.turn(later, "k", delayqueue.TurnOptions{}); came == nil || turn.Ahead != 1 || turn.First.ID != "id" {
		t.Errorf("a later one stands at %+v, and %+v came between", turn, came)
	}
}

// before is a hook that is called before each command.
type before func(redis.Cmder)

func (before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f(cmd)
		return next(ctx, cmd)
	}
}

func (before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
