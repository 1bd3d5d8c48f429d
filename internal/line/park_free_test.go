package line_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// lockKeys are the locks of the keys k and m.
var lockKeys = []line.RedisKeys{
	{Lock: "lock:{k}", Notify: "lock:{k}:notify"},
	{Lock: "lock:{m}", Notify: "lock:{m}:notify"},
}

func TestAFreeKeyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for held, freed := range map[string]string{"": "k", "k": "m", "m": "k", "km": ""} {
		t.Run("held "+held, func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			for _, key := range held {
				r.OK(r.Client.Set(t.Context(), "lock:{"+string(key)+"}", "owner", 0).Err())
			}
			_, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.TaskID("backlog"))
			r.OK(err)
			heard := make(chan line.Task, 1)
			queue, err := line.New(r.Client, line.Options{Woken: func(t line.Task) { heard <- t }})
			r.OK(err)
			t.Cleanup(func() { _ = queue.Close() })
			task := r.Begin(r.Delayed("a"))
			place, err := queue.Park(t.Context(), task, "k",
				line.ParkOptions{RetryAfter: time.Hour, Also: []string{"m"}, Locks: lockKeys, Record: []string{"k", "m", "n"}})
			free := freed != ""
			if err != nil || place.Free != free || place.Count != 1 || place.Task != task {
				t.Fatalf("%+v, %v", place, err)
			}
			pending := r.Client.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val()
			if want := map[bool][]string{true: {"backlog", "a"}, false: {"backlog"}}[free]; !slices.Equal(pending,
				want) {
				t.Errorf("pending are %v, want %v", pending, want)
			}
			for _, key := range []string{"k", "m"} {
				if got := r.Waiting(key); len(got) != map[bool]int{true: 0, false: 1}[free] {
					t.Errorf("for the key %s wait %v", key, got)
				}
			}
			if for1, _ := waitOf(t, r.Client, task).Key(); free && (for1 != freed || r.Client.HGet(t.Context(), task.Hash(), "railtoken:waiters").Val() != line.Names{}.Waiters(freed)) {
				t.Errorf("it comes for %s, want %s", for1, freed)
			}
			if w := waitOf(t, r.Client, task); w.Own {
				t.Errorf("it waits as for a key of the program's own: %+v", w)
			}
			if keys := r.Client.HGet(t.Context(), task.Hash(), "railtoken:keys").Val(); keys != "k m n" {
				t.Errorf("its next fetch is to take the keys %q", keys)
			}
			if info, err := r.Inspect.GetQueueInfo("default"); err != nil || info.Latency < 0 || info.Latency > time.Hour {
				t.Errorf("asynq says of the queue that it is %v late, %v", info.Latency, err)
			}
			if n, err := r.inspector().Count(t.Context()); err != nil || (n == 0) != free {
				t.Errorf("%d are parked, %v", n, err)
			}
			if free && receive(t, heard) != task {
				t.Error("who listens heard of another task")
			}
			if leases := r.Client.ZCard(t.Context(), "asynq:{default}:lease").Val() + r.Client.LLen(t.Context(),
				"asynq:{default}:active").Val(); leases != 0 {
				t.Errorf("%d leases and active tasks are left", leases)
			}
		})
	}
}

// A task that was woken for a key, and finds it held again, stands in line when the key is given back before it parks.
func TestATaskWhoseKeyIsFreeLeavesTheWaiters(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	a, b := r.Delayed("a"), r.Delayed("b")
	r.Park(a, "k")
	r.Park(b, "k")
	place, err := r.Engine.Park(t.Context(), r.Begin(a), "k", line.ParkOptions{RetryAfter: time.Hour, Locks: lockKeys[:1]})
	if err != nil || !place.Free || place.Waiters != 1 || place.Count != 2 {
		t.Errorf("%+v, %v", place, err)
	}
	if got := r.Waiting("k"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("in line are %v", got)
	}
}

func TestInOrderTheFirstGetsAFreeKey(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 2)
	for i, want := range []bool{false, true} {
		task := r.Begin(tasks[1-i])
		place, err := r.Engine.Park(t.Context(), task, "k",
			line.ParkOptions{RetryAfter: time.Hour, InOrder: true, Ahead: 1 - i, Locks: lockKeys[:1]})
		if err != nil || place.Free != want || place.Ahead != 1-i {
			t.Errorf("number %d in line: %+v, %v; want free %v", 2-i, place, err, want)
		}
	}
	if got := r.Waiting("k"); !slices.Equal(got, []string{tasks[1].ID}) {
		t.Errorf("for the key wait %v", got)
	}
}

// A holder looks for the mark when it gives the key back.
func TestTheNotifyKeyOutlivesTheTimer(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	held := func(names line.RedisKeys) { r.OK(r.Client.Set(t.Context(), names.Lock, "owner", 0).Err()) }
	held(lockKeys[0])
	held(lockKeys[1])
	const slack = 2 * time.Minute
	park := func(id string, opts line.ParkOptions) {
		opts.Also, opts.Locks = []string{"m"}, lockKeys
		if place, err := r.Engine.Park(t.Context(), r.Begin(r.Delayed(id)), "k", opts); err != nil || place.Free {
			t.Fatalf("%s: %+v, %v", id, place, err)
		}
	}
	for _, step := range []struct {
		id   string
		opts line.ParkOptions
		want time.Duration
	}{
		{"first", line.ParkOptions{RetryAfter: 30 * time.Second}, 30*time.Second + slack},
		{"longer", line.ParkOptions{RetryAfter: 20 * time.Minute}, 20*time.Minute + slack},
		{"shorter", line.ParkOptions{RetryAfter: 10 * time.Minute}, 20*time.Minute + slack},
		{"without a place", line.ParkOptions{RetryAfter: time.Hour, MaxWaiters: 1}, time.Hour + slack},
	} {
		park(step.id, step.opts)
		for _, names := range lockKeys {
			if ttl := r.Client.PTTL(t.Context(), names.Notify).Val(); ttl > step.want ||
				ttl < step.want-30*time.Second {
				t.Errorf("%s: %s lasts %v, want %v", step.id, names.Notify, ttl, step.want)
			}
		}
	}
	r.OK(r.Client.Del(t.Context(), lockKeys[0].Lock, lockKeys[0].Notify).Err())
	if place, err := r.Engine.Park(t.Context(), r.Begin(r.Delayed("free")), "k",
		line.ParkOptions{RetryAfter: time.Hour, Locks: lockKeys[:1]}); err != nil || !place.Free {
		t.Errorf("%+v, %v", place, err)
	}
	if n := r.Client.Exists(t.Context(), lockKeys[0].Notify).Val(); n != 0 {
		t.Error("a task that does not wait has left a mark")
	}
}
