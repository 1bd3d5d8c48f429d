package line_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// enqueue enqueues a task in line.
func (r *solo) enqueue(key string, opts ...asynq.Option) line.Task {
	r.Helper()
	info, err := r.Engine.EnqueueInOrder(r.Context(), key, "test", []byte("payload"), map[string]string{"tenant": "7"},
		opts...)
	if err != nil {
		r.Fatal(err)
	}
	return line.Task{Queue: info.Queue, ID: info.ID}
}

// line returns the IDs of the tasks in the line of a key.
func (r *solo) line(key string) []string {
	r.Helper()
	members := r.Client.ZRange(r.Context(), "railtoken:sequence:{"+key+"}", 0, -1).Val()
	ids := []string{}
	for _, m := range members {
		size, rest, _ := strings.Cut(m, ":")
		n, err := strconv.Atoi(size)
		if err != nil || n > len(rest) {
			r.Fatalf("%q is in line", m)
		}
		ids = append(ids, rest[n:])
	}
	return ids
}

func TestAnEnqueuedTaskHasAPositionBeforeItRuns(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	first := r.enqueue("k", asynq.Queue("slow"), asynq.TaskID("first"))
	second := r.enqueue("k")
	if first != (line.Task{Queue: "slow", ID: "first"}) || second.Queue != "default" || second.ID == "" {
		t.Errorf("enqueued %s and %s", first, second)
	}
	info, err := r.Inspect.GetTaskInfo("slow", "first")
	if err != nil || string(info.Payload) != "payload" || info.Headers["tenant"] != "7" ||
		info.State != asynq.TaskStatePending {
		t.Errorf("asynq has %+v, %v", info, err)
	}
	if turn := r.turn(second, "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First != first ||
		turn.FirstState != "pending" {
		t.Errorf("the second stands at %+v", turn)
	}
	if turn := r.turn(first, "k", line.JoinOptions{}); turn.Ahead != 0 || len(r.line("k")) != 2 {
		t.Errorf("the first stands at %+v, in line are %v", turn, r.line("k"))
	}
}

func TestOptionsComeToTheSameAsWithAsynq(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, opts := range map[string][]asynq.Option{
		"none": nil,
		"most": {
			asynq.Queue("a"), asynq.MaxRetry(0), asynq.Timeout(time.Minute), asynq.Deadline(deadline),
			asynq.Retention(time.Hour), asynq.Unique(time.Minute),
		},
		"some": {asynq.Queue("b"), asynq.MaxRetry(7), asynq.Deadline(deadline), asynq.Unique(2 * time.Minute)},
		"twice": {
			asynq.Queue("x"), asynq.MaxRetry(7), asynq.Queue("c"), asynq.MaxRetry(3),
			asynq.Timeout(time.Hour),
		},
		"scheduled": {asynq.ProcessIn(time.Hour), asynq.Queue("d"), asynq.Unique(time.Minute)},
		"grouped":   {asynq.Group("g"), asynq.Queue("e")},
	} {
		mine, err := r.Engine.EnqueueInOrder(t.Context(), name, "test", []byte(name), nil, opts...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		theirs, err := r.Tasks.Enqueue(asynq.NewTask("test", []byte(name+"2")), opts...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := func(info *asynq.TaskInfo) string {
			info, err := r.Inspect.GetTaskInfo(info.Queue, info.ID)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lock := r.Client.HGet(t.Context(), "asynq:{"+info.Queue+"}:t:"+info.ID, "unique_key").Val()
			ttl := time.Duration(0)
			if lock != "" {
				ttl = r.Client.TTL(t.Context(), lock).Val().Round(time.Minute)
			}
			return fmt.Sprint(info.Queue, info.MaxRetry, info.Timeout, info.Deadline, info.Retention, info.Group,
				info.State, ttl,
				time.Until(info.NextProcessAt).Round(time.Minute))
		}
		if got, want := kept(mine), kept(theirs); got != want {
			t.Errorf("%s: asynq keeps %s, without a line %s", name, got, want)
		}
		if inLine, want := len(r.line(name)) == 1, mine.State == asynq.TaskStatePending; inLine != want {
			t.Errorf("%s: is in line %v, want %v", name, inLine, want)
		}
	}
}

func TestOptionsThatAsynqRefusesLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for _, opt := range []asynq.Option{
		asynq.Queue(" "), asynq.TaskID(" "), asynq.Unique(time.Millisecond),
		asynq.Group(""),
	} {
		if _, err := r.Engine.EnqueueInOrder(t.Context(), "k", "test", nil, nil, opt); err == nil {
			t.Errorf("%v was accepted", opt)
		}
	}
	for _, taskType := range []string{"", " "} {
		if _, err := r.Engine.EnqueueInOrder(t.Context(), "k", taskType, nil, nil); err == nil {
			t.Errorf("a task of type %q was accepted", taskType)
		}
	}
	if n := r.Client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left behind", n)
	}
}

func TestATaskIsEnqueuedOnceUnderItsID(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.enqueue("k", asynq.TaskID("id"))
	at := r.turn(task, "k", line.JoinOptions{}).At
	for _, key := range []string{"k", "another"} {
		if info, err := r.Engine.EnqueueInOrder(t.Context(), key, "test", nil, nil, asynq.TaskID("id")); !errors.Is(err,
			asynq.ErrTaskIDConflict) || info != nil {
			t.Errorf("a second one for %q gives %v, %v", key, info, err)
		}
	}
	if n := r.Client.Exists(t.Context(), "railtoken:sequence:{another}").Val(); n != 0 {
		t.Error("the refused one is in the line of its key")
	}
	if turn := r.turn(task, "k", line.JoinOptions{}); !turn.At.Equal(at) {
		t.Errorf("the refused one cost the first its place: %+v, want %v", turn, at)
	}
}

func TestAnIDConflictAddsNoTaskOfAnotherSequence(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("enqueued otherwise"),
		asynq.Queue("idle")); err != nil {
		t.Fatal(err)
	}
	r.enqueue("another key", asynq.TaskID("in another line"), asynq.Queue("idle"))
	r.enqueue("k", asynq.TaskID("later"), asynq.ProcessIn(time.Hour))
	failed := r.enqueue("k", asynq.TaskID("has failed"))
	r.Serve(1, func(context.Context, string) error { return errors.New("it failed") })
	r.Become(failed, asynq.TaskStateRetry)
	r.remove(failed, "k")
	for id, queue := range map[string]string{
		"enqueued otherwise": "idle", "in another line": "idle",
		"later": "default", "has failed": "default",
	} {
		if _, err := r.Engine.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID(id),
			asynq.Queue(queue)); !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("a second one gives %v", err)
		}
		if got := r.line("k"); len(got) != 0 {
			t.Errorf("in line are %v", got)
		}
	}
}

func TestARefusedTaskLeavesTheOtherItsPosition(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("id")
	r.turn(task, "k", line.JoinOptions{})
	if _, err := r.Engine.EnqueueInOrder(t.Context(), "k", "test", nil, nil, asynq.TaskID("id")); !errors.Is(err,
		asynq.ErrTaskIDConflict) {
		t.Errorf("a second one gives %v", err)
	}
	later := r.enqueue("k")
	if turn := r.turn(later, "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First != task {
		t.Errorf("a later one stands at %+v", turn)
	}
}

func TestARefusedDuplicateLeavesTheSequenceUnchanged(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.enqueue("k", asynq.Unique(time.Minute))
	before := r.line("k")
	if _, err := r.Engine.EnqueueInOrder(t.Context(), "k", "test", []byte("payload"), nil,
		asynq.Unique(time.Minute)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("a duplicate gives %v", err)
	}
	if after := r.line("k"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("in line are %v, before %v", after, before)
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

func (f before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			f(cmd)
		}
		return next(ctx, cmds)
	}
}
