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

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// add enqueues a task in the rig's queue.
func (r *rig) add(o line.EnqueueOptions, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	r.Helper()
	return r.Engine.Enqueue(r.Context(), asynq.NewTask("test", []byte("payload"), asynq.Queue(r.name)), o, opts...)
}

func (r *rig) field(t line.Task, name string) string {
	r.Helper()
	return r.Client.HGet(r.Context(), hash(t), name).Val()
}

func TestKeysAreRecordedWithTheTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		for name, opts := range map[string][]asynq.Option{
			"pending":          nil,
			"unique":           {asynq.Unique(time.Hour), asynq.Retention(time.Minute)},
			"scheduled":        {asynq.ProcessIn(time.Hour)},
			"scheduled unique": {asynq.ProcessIn(time.Hour), asynq.Unique(time.Hour)},
			"group":            {asynq.Group("g")},
			"group unique":     {asynq.Group("g"), asynq.Unique(time.Hour)},
		} {
			r.name += "x" // the unique locks must differ
			info, err := r.add(line.EnqueueOptions{Keys: []string{"order:1", "a b"}},
				append(opts, asynq.TaskID(name))...)
			if err != nil {
				t.Fatal(err)
			}
			task := r.task(name)
			if got := r.field(task, "railtoken:keys"); got != "order:1 a%20b" {
				t.Errorf("%s: recorded are %q", name, got)
			}
			if got := r.State(task); got != info.State {
				t.Errorf("%s is %v, and said to be %v", name, got, info.State)
			}
			if _, err := r.add(line.EnqueueOptions{}, append(opts, asynq.TaskID(name))...); !errors.Is(err,
				asynq.ErrTaskIDConflict) && !errors.Is(err, asynq.ErrDuplicateTask) {
				t.Errorf("%s: a second one gives %v", name, err)
			}
		}
	})
}

func TestATaskWithoutKeysHasNoRecordOfThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		info, err := r.add(line.EnqueueOptions{})
		if err != nil || r.Client.HExists(t.Context(), hash(r.task(info.ID)), "railtoken:keys").Val() {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestAnExistingLockRefusesTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	locks := []string{r.key("free"), r.key("held")}
	r.Client.Set(t.Context(), locks[1], "owner", time.Hour)
	for range 2 {
		if info, err := r.add(line.EnqueueOptions{Locks: locks}, asynq.TaskID("a"),
			asynq.Unique(time.Hour)); !errors.Is(err, line.ErrLocked) || info != nil {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	if left := r.Client.Keys(t.Context(), "asynq:{"+r.name+"}:*").Val(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	r.Client.Del(t.Context(), locks[1])
	if info, err := r.add(line.EnqueueOptions{Locks: locks}, asynq.TaskID("a"), asynq.Unique(time.Hour)); err != nil ||
		info.State != asynq.TaskStatePending {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestATaskWaitsFromTheStart(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		if _, err := r.add(line.EnqueueOptions{}, asynq.TaskID("backlog")); err != nil {
			t.Fatal(err)
		}
		r.Park(r.Delayed("first"), "k")
		wait := line.EnqueueOptions{
			Keys: []string{r.key("k")}, WaitFor: r.key("k"),
			ParkOptions: line.ParkOptions{RetryAfter: time.Hour},
		}
		info, err := r.add(wait, asynq.TaskID("a"), asynq.MaxRetry(0), asynq.Unique(time.Second),
			asynq.Retention(time.Minute))
		if err != nil || info.State != asynq.TaskStateRetry || time.Until(info.NextProcessAt) < time.Minute {
			t.Fatalf("%+v, %v", info, err)
		}
		if got := r.Waiting("k"); !slices.Equal(got, []string{"first", "a"}) {
			t.Errorf("waiting are %v", got)
		}
		if n := len(r.parked()); n != 2 {
			t.Errorf("%d are parked", n)
		}
		if _, err := r.add(line.EnqueueOptions{}, asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a duplicate gives %v", err)
		}
		if ttl := r.Client.TTL(t.Context(), r.field(r.task("a"), "unique_key")).Val(); ttl < time.Hour {
			t.Errorf("the uniqueness lock ends in %v, before the task's timer", ttl)
		}
		r.Wake("k")
		if woken := r.Wake("k"); woken.First() != r.task("a") {
			t.Errorf("woken is %+v", woken)
		}
		got, err := r.Inspect.GetTaskInfo(r.name, "a")
		if err != nil || got.State != asynq.TaskStatePending || got.Retried != 0 || got.MaxRetry != 0 ||
			got.Retention != time.Minute {
			t.Errorf("%+v, %v", got, err)
		}
		if ids := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(); !slices.Equal(ids,
			[]string{"backlog", "first", "a"}) {
			t.Errorf("pending are %v", ids)
		}
	})
}

func TestALaterTaskWithALockIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		for name, opt := range map[string]asynq.Option{
			"due later": asynq.ProcessIn(time.Hour),
			"group":     asynq.Group("g"),
		} {
			for _, o := range []line.EnqueueOptions{
				{AtOnce: true},
				{WaitFor: r.key("k")},
				{Locks: []string{"{" + r.name + "}"}},
			} {
				if info, err := r.add(o, opt); !errors.Is(err, line.ErrNotNow) || info != nil {
					t.Errorf("%s: %+v gives %+v, %v", name, o, info, err)
				}
			}
		}
		if left := r.Waiting("k"); len(left) > 0 {
			t.Errorf("waiting are %v", left)
		}
	})
}

func TestALostReplyEnqueuesOnce(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]line.EnqueueOptions{
		"enqueued": {Keys: []string{"k"}},
		"waiting":  {Keys: []string{"k"}, WaitFor: "k", ParkOptions: line.ParkOptions{RetryAfter: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			if _, err := r.Engine.Enqueue(t.Context(), asynq.NewTask("warm", nil), o, asynq.TaskID("warm"),
				asynq.Unique(time.Second)); err != nil {
				t.Fatal(err)
			}
			queue, left := r.loses("payload-of-k", 3)
			info, err := queue.Enqueue(t.Context(), asynq.NewTask("test", []byte("payload-of-k")), o, asynq.TaskID("a"),
				asynq.Unique(time.Minute))
			if err != nil || info.ID != "a" || left.Load() > 0 {
				t.Fatalf("%+v, %v", info, err)
			}
			count := func(all []string) (n int) {
				for _, id := range all {
					if id == "a" {
						n++
					}
				}
				return n
			}
			pending, waiting := count(r.Client.LRange(t.Context(), "asynq:{default}:pending", 0,
				-1).Val()), count(r.Waiting("k"))
			if waits := o.WaitFor != ""; pending+waiting != 1 || waits != (waiting == 1) {
				t.Errorf("it is pending %d times, and waits %d times", pending, waiting)
			}
		})
	}
}

// What lastWakes the enqueue of a task that waits fails: the producer has died, or Redis.
func TestATaskThatCannotJoinTheWaitersComesByItsTimer(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	queue, left := r.loses("railtoken:parked", -1)
	o := line.EnqueueOptions{WaitFor: "k", ParkOptions: line.ParkOptions{RetryAfter: time.Second}}
	info, err := queue.Enqueue(t.Context(), asynq.NewTask("test", nil), o)
	if err != nil || left.Load() > 0 || info.State != asynq.TaskStateRetry {
		t.Fatalf("%+v, %v", info, err)
	}
	ran := make(chan string, 9)
	linetest.Serve(t, r.Engine, asynq.Config{DelayedTaskCheckInterval: 100 * time.Millisecond},
		func(_ context.Context, id string) error {
			ran <- id
			return nil
		})
	for id := ""; id != info.ID; { // others had the scripts known
		id = receive(t, ran)
	}
}

func TestATaskIsEnqueuedOnceItsSlotHasArrived(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	for name, wait := range map[string]string{"enqueued": "", "waiting": "k"} {
		r := newRigOn(t, "cluster", cluster.Client(t))
		o := line.EnqueueOptions{ParkOptions: line.ParkOptions{RetryAfter: time.Hour}}
		if wait != "" {
			o.WaitFor = r.key(wait)
		}
		if _, err := r.add(line.EnqueueOptions{}, asynq.TaskID("backlog")); err != nil {
			t.Fatal(err)
		}
		move := r.beginMove(cluster)
		soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		task := asynq.NewTask("test", nil, asynq.Queue(r.name), asynq.TaskID("a"))
		info, err := r.Engine.Enqueue(soon, task, o)
		cancel()
		if err == nil {
			t.Errorf("%s: while its slot moves it is %+v", name, info)
		}
		added := make(chan error, 1)
		go func() {
			_, err := r.Engine.Enqueue(t.Context(), task, o)
			added <- err
		}()
		move.Finish(t)
		if err := receive(t, added); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if lists := r.listsOf(r.task("a")); !slices.Equal(lists,
			[]string{map[string]string{"": "pending", "k": "retry"}[wait]}) || len(r.Waiting("k")) != len(wait) {
			t.Errorf("%s: it is in %v, and waiting are %v", name, lists, r.Waiting("k"))
		}
	}
}

// A deadline counts while a task waits, also from its enqueue on.
func TestATaskThatIsEnqueuedToWaitKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		deadline := time.Now().Add(time.Hour)
		for name, opts := range map[string][]asynq.Option{"plain": nil, "unique": {asynq.Unique(time.Minute)}} {
			info, err := r.Engine.Enqueue(t.Context(), asynq.NewTask(name, nil), line.EnqueueOptions{
				WaitFor: r.key("k"), ParkOptions: line.ParkOptions{RetryAfter: time.Hour},
			}, append(opts, asynq.Queue(r.name), asynq.Deadline(deadline))...)
			if err != nil {
				t.Fatal(err)
			}
			if w := r.wait(r.task(info.ID)); w.Deadline != deadline.Unix() {
				t.Errorf("%s: its deadline is %d, want %d", name, w.Deadline, deadline.Unix())
			}
		}
	})
}

// The process that enqueues it may end before it has put the task in line.
func TestADeadlineIsNotedWithTheEnqueue(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		client, enqueued := shared.clientOf(t, kind), false
		client.AddHook(lossy(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
			if !strings.HasPrefix(cmds[0].Name(), "eval") {
				return next()
			}
			if enqueued {
				return redistest.Fail(cmds[0], errAway)
			}
			err := next()
			enqueued = err == nil
			return err
		}))
		r := newRigOn(t, kind, shared.clientOf(t, kind))
		queue, deadline := r.newQueue(client, line.Options{}), time.Now().Add(time.Hour)
		enqueued = false
		info, err := queue.Enqueue(t.Context(), asynq.NewTask("test", nil), line.EnqueueOptions{
			WaitFor: r.key("k"), ParkOptions: line.ParkOptions{RetryAfter: time.Hour},
		}, asynq.Queue(r.name), asynq.Deadline(deadline))
		if err != nil {
			t.Fatal(err)
		}
		if w := r.wait(r.task(info.ID)); w.Deadline != deadline.Unix() {
			t.Errorf("%s: its deadline is %d, want %d", kind, w.Deadline, deadline.Unix())
		}
	}
}

// Far back in line it looks for itself later, and refuses duplicates until then. It counts as parked when others have parked since.
func TestATaskThatWaitsFromTheStartCounts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.crowd("k", 16)
		wait := line.EnqueueOptions{WaitFor: r.key("k"), ParkOptions: line.ParkOptions{RetryAfter: 32 * time.Second}}
		info, err := r.add(wait, asynq.TaskID("a"), asynq.Unique(time.Second))
		if err != nil || time.Until(info.NextProcessAt).Round(time.Second) != 96*time.Second {
			t.Fatalf("%+v, %v", info, err)
		}
		if ttl := r.Client.TTL(t.Context(), r.field(r.task("a"), "unique_key")).Val(); ttl < 96*time.Second {
			t.Errorf("the uniqueness lock ends in %v, before the task's timer", ttl)
		}
		r.Park(r.Delayed("b"), "k")
		if parked := r.parked(); len(parked) != 18 || !slices.Contains(parked, entry(r.task("a"))) {
			t.Errorf("parked are %q", parked)
		}
	})
}
