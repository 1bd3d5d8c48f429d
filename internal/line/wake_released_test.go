package line_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/locking"
)

// holder is a task that was fetched with its locks.
type holder struct {
	*solo
	in       *intake.Intake
	stopping chan struct{} // closed when its server fetches no more
	unserved []string      // queues
	task     intake.Task
	kept     bool            // its locks have a next holder
	place    colocated.Place // in the sequence of its key
}

// newHolder returns the holder of some keys, encoded, on a server that fetches no more.
func newHolder(t *testing.T, keys string) *holder {
	t.Helper()
	h := newFetcher(t, keys, 1)
	close(h.stopping)
	return h
}

func newFetcher(t *testing.T, keys string, slots int) *holder {
	t.Helper()
	h := &holder{solo: newSolo(t), stopping: make(chan struct{})}
	single, err := locking.NewSingle(h.Client, locking.SingleOptions{})
	h.OK(err)
	t.Cleanup(func() { _ = single.Close() })
	(&holds{solo: h.solo}).record("holder", keys)
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{After: time.Second, Most: time.Minute, Behind: 1})
	types.Learn("limited", time.Minute, colocated.Wait{})
	parkings := h.Engine.ParkingAtFetch()
	parkings.Unserved = func() []string { return h.unserved }
	h.in = intake.New(h.Client, intake.Options{
		Queues: map[string]int{"first": 3, "default": 2, "last": 1}, Strict: true, Slots: slots, Locks: locks.Colocated(single), Types: &types, Parking: parkings, Stopping: h.stopping,
	})
	_, err = h.in.Fetch(t.Context(), "default")
	h.OK(err)
	var ok bool
	if h.task, ok = h.in.Take(); !ok || h.task.Taken == nil {
		t.Fatalf("the task comes as %+v", h.task)
	}
	return h
}

// wait parks a task, whose keys are recorded, on one of them.
func (h *holder) wait(id, keys, key string) {
	h.Helper()
	h.waitAs("test", "default", id, keys, key)
}

// waitAs parks a task of a type in a queue.
func (h *holder) waitAs(kind, queue, id, keys, key string) {
	h.Helper()
	_, err := asynq.NewClientFromRedisClient(h.Client).Enqueue(asynq.NewTask(kind, nil), asynq.TaskID(id), asynq.Queue(queue))
	h.OK(err)
	h.OK(h.Client.HSet(h.Context(), "asynq:{"+queue+"}:t:"+id, "railtoken:keys", keys).Err())
	lock := "railtoken:lock:{" + key + "}"
	_, err = h.Engine.Park(h.Context(), h.Begin(line.Task{Queue: queue, ID: id}), key, line.ParkOptions{
		RetryAfter: wake, Locks: []line.RedisKeys{{Lock: lock, Notify: lock + ":notify"}},
	})
	h.OK(err)
}

// acknowledge ends the run of the holder, which releases its keys and wakes so many tasks for each. text is the script that ends it,
// "" for asynq's "done".
func (h *holder) acknowledge(most int, text string) (got colocated.Outcome) {
	h.Helper()
	release := h.task.Taken.Release(nil)
	release.Wakes, release.Kept, release.Place = most, h.kept, h.place
	release.Then(func(o colocated.Outcome, err error) {
		h.OK(err)
		got = o
	})
	queue := "asynq:{default}:"
	ok, err := h.in.Acknowledge(h.Context(), intake.Acknowledgement{
		Queue: "default", ID: "holder", Done: text == "", Text: text, Release: release,
		Keys: []string{queue + "active", queue + "lease", queue + "t:holder", queue + "processed:today", queue + "processed", queue + "retry"},
		Args: []any{"holder", time.Now().Add(time.Hour).Unix(), int64(1) << 62},
	})
	if !ok || err != nil {
		h.Fatal(ok, err)
	}
	return got
}

// rewait changes the record of a task's wait.
func (h *holder) rewait(id string, w line.Wait) {
	h.Helper()
	h.OK(h.Client.HSet(h.Context(), "asynq:{default}:t:"+id, linetest.Record(w)...).Err())
}

// waited leaves the traces of a task that has waited and was brought back by its timer.
func (h *holder) waited() {
	h.Helper()
	h.OK(h.Client.HSet(h.Context(), "asynq:{default}:t:holder", linetest.Record(line.Wait{Place: 1, Keys: []string{"k"}})...).Err())
	for _, set := range []string{"railtoken:waiters:{k}", line.Names{}.Index("")} {
		h.OK(h.Client.ZAdd(h.Context(), set, redis.Z{Score: 1, Member: "7:defaultholder"}).Err())
	}
}

func TestAnAcknowledgementWakesWaitersThatCanRun(t *testing.T) {
	t.Parallel()
	overdue := func(id string) func(h *holder) {
		return func(h *holder) { h.rewait(id, line.Wait{Deadline: 1, Keys: []string{"k"}}) }
	}
	for name, tt := range map[string]struct {
		most    int
		waiters []string
		prepare func(h *holder)
		woken   []string // by the acknowledgement
	}{
		"the only one":            {most: 1, waiters: []string{"a"}, woken: []string{"a"}},
		"the first":               {most: 1, waiters: []string{"a", "b", "c"}, woken: []string{"a"}},
		"no slot for a second":    {most: 2, waiters: []string{"a", "b", "c", "d"}, woken: []string{"a"}},
		"none is to be woken":     {most: 0, waiters: []string{"a"}},
		"none waits":              {most: 1},
		"one behind cannot run":   {most: 1, waiters: []string{"a", "b"}, prepare: overdue("b"), woken: []string{"a"}},
		"the first is overdue":    {most: 2, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: overdue("a")},
		"the second is overdue":   {most: 2, waiters: []string{"a", "b"}, woken: []string{"a"}, prepare: overdue("b")},
		"it waits for another":    {most: 1, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: func(h *holder) { h.rewait("a", line.Wait{Keys: []string{"other"}}) }},
		"it has begun by itself":  {most: 1, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: func(h *holder) { h.Begin(line.Task{Queue: "default", ID: "a"}) }},
		"its timer has rung":      {most: 1, waiters: []string{"a", "b"}, woken: []string{"a"}, prepare: func(h *holder) { h.OK(h.Inspect.RunTask("default", "a")) }},
		"it is gone":              {most: 1, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: func(h *holder) { h.OK(h.Inspect.DeleteTask("default", "a")) }},
		"it is archived":          {most: 1, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: func(h *holder) { h.OK(h.Inspect.ArchiveTask("default", "a")) }},
		"its queue is paused":     {most: 1, waiters: []string{"a", "b"}, prepare: func(h *holder) { h.OK(h.Inspect.PauseQueue("default")) }},
		"its queue has no server": {most: 1, waiters: []string{"a", "b"}, prepare: func(h *holder) { h.unserved = []string{"x", "default"} }},
		"another queue has none":  {most: 1, waiters: []string{"a"}, woken: []string{"a"}, prepare: func(h *holder) { h.unserved = []string{"defaults", "fault"} }},
		"it is in no set": {most: 1, waiters: []string{"a", "b"}, woken: []string{"b"}, prepare: func(h *holder) {
			h.OK(h.Client.ZRem(h.Context(), "asynq:{default}:retry", "a").Err())
		}},
		"the holder came by its timer": {most: 1, waiters: []string{"a", "b"}, woken: []string{"a"}, prepare: (*holder).waited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolder(t, "k")
			for _, id := range tt.waiters {
				h.wait(id, "k", "k")
			}
			if tt.prepare != nil {
				tt.prepare(h)
			}
			got := h.acknowledge(tt.most, "")
			var woken []string
			for _, w := range got.Woken {
				for _, entry := range w.Entries {
					task, err := line.ParseEntry(entry)
					h.OK(err)
					woken = append(woken, task.ID)
				}
				if w.Key != 1 || w.Left != len(h.Waiting("k")) || w.Pending != len(w.Entries) {
					t.Errorf("the acknowledgement tells %+v", w)
				}
			}
			if !slices.Equal(woken, tt.woken) || got.Parked != (len(woken) == 0 && len(tt.waiters) > 0) {
				t.Errorf("the acknowledgement has woken %v, want %v; left to the caller: %t", woken, tt.woken, got.Parked)
			}
			pending := h.Client.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val()
			slices.Reverse(pending)
			if !slices.Equal(pending[:min(len(woken), len(pending))], woken) {
				t.Errorf("%v are pending, want first %v", pending, woken)
			}
			for _, id := range h.Waiting("k") {
				if slices.Contains(woken, id) {
					t.Errorf("%s still waits", id)
				}
			}
			if next := h.Waiting("k"); len(woken) > 0 && len(next) > 0 {
				due := h.Client.ZScore(t.Context(), "asynq:{default}:retry", next[0]).Val()
				if left := time.Until(time.Unix(int64(due), 0)); left > wake+3*time.Second {
					t.Errorf("the timer of the next waiter ends in %v only", left)
				}
			}
		})
	}
}

// A failed task that was brought back by its timer is still among the waiters. Its release must not wake it before its
// retry is due.
func TestAReleaseDoesNotWakeTheTaskThatMadeIt(t *testing.T) {
	t.Parallel()
	h := newHolder(t, "k")
	h.waited()
	h.OK(h.Client.Set(t.Context(), "railtoken:lock:{k}:notify", "1", time.Minute).Err())
	h.acknowledge(1, `redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[6], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], 'state', 'retry')
return redis.status_reply('OK')`)
	if n := h.Client.LLen(t.Context(), "asynq:{default}:pending").Val(); n > 0 {
		t.Error("the task has woken itself")
	}
	if waiting := h.Waiting("k"); len(waiting) > 0 {
		t.Errorf("%v wait for the key", waiting)
	}
}

func TestAnAcknowledgementWakesForEachKeyThatItCan(t *testing.T) {
	t.Parallel()
	h := newHolder(t, "j k l")
	h.wait("a", "j", "j")
	h.wait("b", "k", "k")
	h.rewait("b", line.Wait{Deadline: 1, Keys: []string{"k"}})
	got := h.acknowledge(1, "")
	if len(got.Woken) != 1 || got.Woken[0].Key != 1 || !slices.Equal(got.Woken[0].Entries, []string{"7:defaulta"}) || !got.Parked {
		t.Errorf("the acknowledgement tells %+v, want the task of the first key, and one that is left to the caller", got)
	}
	if n := h.Client.Exists(t.Context(), "railtoken:lock:{j}", "railtoken:lock:{k}", "railtoken:lock:{l}").Val(); n > 0 {
		t.Errorf("%d locks are left", n)
	}
}

// The fetch leaves the lock to a caller that has heard of the release. Then no other task is to follow the one that was woken.
func TestAnAcknowledgementFetchesTheTaskThatItWakes(t *testing.T) {
	t.Parallel()
	for name, heard := range map[string]bool{"nobody else waits": false, "a caller waits elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFetcher(t, "k", 1)
			h.wait("a", "k", "k")
			h.wait("b", "k", "k")
			if heard {
				subscription := h.Client.Subscribe(t.Context(), "railtoken:lock:{k}")
				t.Cleanup(func() { _ = subscription.Close() })
				_, err := subscription.Receive(t.Context())
				h.OK(err)
			}
			got := h.acknowledge(2, "")
			want := []string{"7:defaulta", "7:defaultb"}
			if heard {
				want = want[:1]
			}
			if len(got.Woken) != 1 || !slices.Equal(got.Woken[0].Entries, want) || got.Woken[0].Pending != 0 {
				t.Errorf("the acknowledgement tells %+v, want %v", got, want)
			}
			next, _ := h.in.Take()
			if next.ID != "a" || !next.Woken || next.WokenFor <= 0 || (next.Taken == nil) != heard {
				t.Errorf("the task that was woken comes as %+v", next)
			}
		})
	}
}

func TestALeaseThatIsHandedOffStaysLocked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slots   int
		prepare func(h *holder)
		woken   int
	}{
		"a slot for the next one": {slots: 2, woken: 1},
		"no slot":                 {slots: 2, prepare: func(h *holder) { close(h.stopping) }},
		"another server's task": {slots: 2, prepare: func(h *holder) {
			h.OK(h.Client.ZRem(h.Context(), "railtoken:waiters:{k}", "7:defaulta").Err())
			h.OK(h.Client.ZAdd(h.Context(), "railtoken:waiters:{k}", redis.Z{Score: 1, Member: "5:othera"}).Err())
		}},
		"the lock is another owner's": {slots: 2, prepare: func(h *holder) {
			h.OK(h.Client.Set(h.Context(), "railtoken:lock:{k}", "another/1/x", 0).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFetcher(t, "k", tt.slots)
			h.wait("a", "k", "k")
			h.kept = true
			if tt.prepare != nil {
				tt.prepare(h)
			}
			before := h.Client.Get(t.Context(), "railtoken:lock:{k}").Val()
			got := h.acknowledge(1, "")
			if len(got.Woken) != tt.woken || got.Lost != 0 {
				t.Errorf("the acknowledgement tells %+v, want %+v", got, tt)
			}
			if after := h.Client.Get(t.Context(), "railtoken:lock:{k}").Val(); after != before || before == "" {
				t.Errorf("the lock is %q, and was %q", after, before)
			}
			if next, ok := h.in.Take(); ok != (tt.woken > 0) || ok && next.Refused == nil {
				t.Errorf("%+v comes: %t", next, ok)
			}
		})
	}
}

// The first of a sequence runs, or stands elsewhere: an acknowledgement wakes none of those behind it.
func TestAnAcknowledgementWakesTheFirstOfASequenceAlone(t *testing.T) {
	t.Parallel()
	for name, parks := range map[string]bool{"the first waits": true, "the first does not wait": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolder(t, "k")
			h.place = colocated.Leaves
			for i, id := range []string{"second", "first"} { // it came first, and was refused later
				if id == "second" || parks {
					h.wait(id, "k", "k")
				}
				h.OK(h.Client.ZAdd(t.Context(), line.Names{}.Sequence("k"), redis.Z{Score: float64(3 - i), Member: "7:default" + id}).Err())
			}
			got := h.acknowledge(1, "")
			if !parks {
				if len(got.Woken) != 0 || !got.Parked || !slices.Equal(h.Waiting("k"), []string{"second"}) {
					t.Errorf("the acknowledgement tells %+v, and %q wait", got, h.Waiting("k"))
				}
				return
			}
			if len(got.Woken) != 1 || !slices.Equal(got.Woken[0].Entries, []string{"7:defaultfirst"}) || !slices.Equal(h.Waiting("k"), []string{"second"}) {
				t.Errorf("the acknowledgement tells %+v, and %q wait", got, h.Waiting("k"))
			}
		})
	}
}
