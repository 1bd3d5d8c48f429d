package line_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/locking"
)

// A script parks the task, in one of the two ways, and Redis is left the same.
func TestAFetchParksAsAnAcknowledgementDoes(t *testing.T) {
	t.Parallel()
	minutesAgo := func(n int) int64 { return time.Now().Add(-time.Duration(n) * time.Minute).UnixMicro() }
	late := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, tt := range map[string]struct {
		opts   []asynq.Option
		before int  // how many wait
		alone  bool // no other task is parked with it
		found  bool // their keys were not recorded: the server finds them
	}{
		"no other waits":                {},
		"behind others":                 {before: 20},
		"unique":                        {opts: []asynq.Option{asynq.Unique(time.Minute)}},
		"with a deadline":               {opts: []asynq.Option{asynq.Deadline(late)}},
		"with all fields":               {opts: []asynq.Option{asynq.Unique(time.Minute), asynq.Deadline(late), asynq.Retention(time.Hour), asynq.MaxRetry(300)}},
		"the only one that was fetched": {alone: true},
		"with keys that were found":     {before: 3, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func(h *solo, id string) {
				ctx := t.Context()
				for i := range tt.before {
					other := fmt.Sprint("before", i)
					h.OK(h.Client.HSet(ctx, "asynq:{default}:t:"+other, "state", "retry").Err())
					h.OK(h.Client.ZAdd(ctx, "railtoken:waiters:{k}", redis.Z{Score: float64(minutesAgo(25)), Member: "7:default" + other}).Err())
				}
				if unique := h.Client.HGet(ctx, "asynq:{default}:t:"+id, "unique_key").Val(); unique != "" {
					h.OK(h.Client.PExpire(ctx, unique, 30*time.Second).Err())
				}
			}
			h, keys := newHolds(t, anyWait), "k"
			if tt.found {
				h.find, keys = func(*asynq.Task) []string { return []string{"k"} }, ""
			}
			ids := []string{"x", "y"} // the first of a call, and one behind it
			if tt.alone {
				ids = ids[:1]
			}
			for _, id := range ids {
				h.record(id, keys, tt.opts...)
				prepare(h.solo, id)
				h.OK(h.Client.HSet(t.Context(), "asynq:{default}:t:"+id, "pending_since", time.Now().UnixNano()).Err()) // as asynq's Client does
			}
			h.fetch()
			byFetch := map[string]map[string]string{}
			told := map[string]line.Parked{}
			for range ids {
				p := receive(t, h.parked)
				told[p.Task.ID] = p
			}
			for _, id := range ids {
				byFetch[id] = trace(t, h.Client, id)
				if kept := h.Client.HExists(t.Context(), "asynq:{default}:t:"+id, "pending_since").Val(); kept && !tt.found {
					t.Errorf("%s keeps pending_since, which costs memory", id)
				}
			}

			other := newSolo(t)
			ref := &holds{solo: other}
			ref.hold("k", time.Minute)
			for _, id := range ids {
				ref.record(id, "k", tt.opts...)
				prepare(other, id)
			}
			byAck := map[string]line.Parked{}
			for _, id := range ids {
				task := line.Task{Queue: "default", ID: id}
				message := other.Client.HGet(t.Context(), "asynq:{default}:t:"+id, "msg").Val()
				opts := line.ParkOptions{
					RetryAfter: wake, Locks: []line.RedisKeys{{Lock: "railtoken:lock:{k}", Notify: "railtoken:lock:{k}:notify"}},
				}
				place, err := other.Engine.Park(t.Context(), other.Begin(task), "k", opts.Fetched(message).Unique(message))
				other.OK(err)
				byAck[id] = place
			}
			for _, id := range ids {
				want := trace(t, other.Client, id)
				if got := byFetch[id]; !maps.Equal(got, want) {
					for field := range want {
						if got[field] != want[field] {
							t.Errorf("%s, %s: %q by a fetch, %q by an acknowledgement", id, field, got[field], want[field])
						}
					}
					for field := range got {
						if _, ok := want[field]; !ok {
							t.Errorf("%s, %s: %q by a fetch alone", id, field, got[field])
						}
					}
				}
				a, b := told[id], byAck[id]
				if a.Count != b.Count || a.Waiters != b.Waiters || a.Ahead != b.Ahead || !a.Looked ||
					a.First.Sub(b.First).Abs() > time.Minute {
					t.Errorf("%s: %+v by a fetch, %+v by an acknowledgement", id, a, b)
				}
			}
			if n := len(h.ran); n > 0 {
				t.Errorf("%d tasks have run", n)
			}
			if n := h.Client.LLen(t.Context(), "asynq:{default}:active").Val() + h.Client.ZCard(t.Context(), "asynq:{default}:lease").Val(); n > 0 {
				t.Errorf("%d are still active, or leased", n)
			}
		})
	}
}

// The script leaves these tasks to their server, which gives them to their handler here.
func TestAFetchLeavesOtherTasksToTheirServer(t *testing.T) {
	t.Parallel()
	record := func(keys ...string) []any {
		return []any{line.WaitField, line.Wait{Conflict: line.Conflict{Count: 1, First: time.UnixMicro(1)}, Keys: keys}.String()}
	}
	for name, tt := range map[string]struct {
		keys   string
		fields []any
		breaks func(h *holds) // no task can be parked then
	}{
		"the key is free":           {keys: "free"},
		"no keys are recorded":      {},
		"it was woken":              {keys: "k", fields: []any{"railtoken:woken", 1}},
		"it comes by its timer":     {keys: "k", fields: record("k")},
		"it waits for another key":  {keys: "k", fields: record("other")},
		"several keys, refused":     {keys: "free k", fields: record()},
		"the waiters are no set":    {keys: "k", breaks: func(h *holds) { h.Client.Set(h.Context(), "railtoken:waiters:{k}", "text", 0) }},
		"the index is no set":       {keys: "k", breaks: func(h *holds) { h.Client.Set(h.Context(), "railtoken:parked", "text", 0) }},
		"the message is unreadable": {keys: "k", fields: []any{"msg", "\x0a\x04test\xff"}},
		"a field is not known":      {keys: "k", fields: []any{"msg", "\x0a\x04test\x1a\x01x\x22\x07default\x82\x01\x02\x38\x01"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolds(t, anyWait)
			h.record("y", "k") // is parked
			h.record("x", tt.keys)
			h.record("z", "k") // is parked
			if len(tt.fields) > 0 {
				h.OK(h.Client.HSet(t.Context(), "asynq:{default}:t:x", tt.fields...).Err())
			}
			want := []string{"x"}
			if tt.breaks != nil {
				tt.breaks(h)
				want = []string{"x", "y", "z"}
			}
			h.fetch()
			if name == "the message is unreadable" { // asynq cannot run it
				h.Until("the others wait", func() bool { return slices.Equal(h.Waiting("k"), []string{"y", "z"}) })
				if n := h.Client.ZCard(t.Context(), "asynq:{default}:retry").Val(); n != 2 {
					t.Errorf("%d tasks are to be retried", n)
				}
				return
			}
			var ran []string
			for range want {
				ran = append(ran, receive(t, h.ran))
			}
			slices.Sort(ran)
			if !slices.Equal(ran, want) {
				t.Errorf("%v ran, want %v", ran, want)
			}
			if tt.breaks == nil {
				h.Until("the others wait", func() bool { return slices.Equal(h.Waiting("k"), []string{"y", "z"}) })
			}
			h.Until("nothing is active", func() bool {
				return h.Client.LLen(t.Context(), "asynq:{default}:active").Val()+h.Client.ZCard(t.Context(), "asynq:{default}:lease").Val() == 0
			})
			if n := h.Client.Exists(t.Context(), "railtoken:lock:{free}").Val(); n > 0 && name != "the key is free" {
				t.Error("a key is held that a refused task has taken")
			}
		})
	}
}

// Those that may be next in line are the server's.
func TestAFetchParksBehindOthersAlone(t *testing.T) {
	t.Parallel()
	h := newHolds(t, colocated.Wait{Behind: 5, After: wake, Most: wake})
	h.park = true
	const tasks = 100
	for i := range tasks {
		h.record(fmt.Sprint("t", i), "k")
	}
	h.fetch()
	first := 0
	for range tasks {
		select {
		case p := <-h.parked:
			if p.Ahead < 5 {
				t.Errorf("a script has parked %+v", p)
			}
		case <-h.left:
			first++
		case <-time.After(limit):
			t.Fatal("not all were parked")
		}
	}
	if first < 5 || first > tasks/2 {
		t.Errorf("%d of %d were left to the server, which has four slots", first, tasks)
	}
	if n := len(h.ran); n > 0 {
		t.Errorf("%d tasks have run", n)
	}
}

// One call parks so many tasks. Another one follows, and free tasks behind them run at once.
func TestAFloodIsParkedInOrderBeforeATaskThatCanRun(t *testing.T) {
	t.Parallel()
	h := newHolds(t, anyWait)
	const tasks = 350
	var want []string
	for i := range tasks {
		id, key := fmt.Sprintf("t%03d", tasks-i), "k"
		if n := i % 50; n == 20 || n == 21 {
			key = "free" + id
		} else {
			want = append(want, id)
		}
		h.record(id, key)
	}
	h.fetch()
	for range tasks / 50 * 2 {
		receive(t, h.ran)
	}
	for range want {
		p := receive(t, h.parked)
		if i := slices.Index(want, p.Task.ID); p.Ahead != i || p.Waiters != i+1 {
			t.Fatalf("%+v was parked, behind %d others", p, i)
		}
	}
	for range len(h.calls) {
		if n := <-h.calls; n > 100 {
			t.Errorf("a call has parked %d tasks", n)
		}
	}
	if got := h.Waiting("k"); !slices.Equal(got, want) {
		t.Errorf("there wait %d tasks, %v, want %d", len(got), got[:min(len(got), 10)], len(want))
	}
	for i, id := range want { // the timers of those that come first end first
		due := h.Client.ZScore(t.Context(), "asynq:{default}:retry", id).Val()
		left := time.Until(time.Unix(int64(due), 0))
		if want := min(time.Duration(1+i/8)*wake, 10*time.Minute); (left - want).Abs() > limit {
			t.Fatalf("the timer of %s ends in %v, want %v", id, left, want)
		}
	}
	h.Until("all others are gone", func() bool {
		return len(h.Client.Keys(t.Context(), "asynq:{default}:t:*").Val()) == len(want)
	})
	if n := h.Client.ZCard(t.Context(), "railtoken:parked").Val(); int(n) != len(want) {
		t.Errorf("%d tasks are in the index, want %d", n, len(want))
	}
}

// A task tries again a moment after the lock that it has met has ended.
func TestTheTimerOfAFetchedTaskFollowsTheLock(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ ttl, look time.Duration }{
		"soon":          {10 * time.Second, 11 * time.Second},
		"late":          {time.Hour, 55 * time.Second},
		"never by name": {0, 55 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHolds(t, colocated.Wait{After: time.Second, Most: 55 * time.Second})
			h.hold("k", tt.ttl)
			h.record("x", "k")
			h.fetch()
			receive(t, h.parked)
			due := time.Unix(int64(h.Client.ZScore(t.Context(), "asynq:{default}:retry", "x").Val()), 0)
			if left := time.Until(due); left > tt.look+time.Second || left < tt.look-5*time.Second {
				t.Errorf("the timer ends in %v, want %v", left, tt.look)
			}
		})
	}
}

// Tasks of several keys come in one call, and those that can run come in between.
func TestAFetchParksOnSeveralKeys(t *testing.T) {
	t.Parallel()
	h := newHolds(t, anyWait)
	h.hold("l", time.Minute)
	want := map[string][]string{}
	var free []string
	for i := range 60 {
		id, key := fmt.Sprintf("t%02d", i), []string{"k", "l", "free", "free2 l", "k k"}[i%5]
		if key == "free" {
			free = append(free, id)
			h.record(id, key+id)
			continue
		}
		h.record(id, key)
		key = key[len(key)-1:]
		want[key] = append(want[key], id)
	}
	h.fetch()
	var ran []string
	for range free {
		ran = append(ran, receive(t, h.ran))
	}
	slices.Sort(ran)
	if !slices.Equal(ran, free) {
		t.Errorf("%v ran, want %v", ran, free)
	}
	for key, ids := range want {
		if got := h.Waiting(key); !slices.Equal(got, ids) {
			t.Errorf("for %s wait %v, want %v", key, got, ids)
		}
	}
	h.Until("no lock is left", func() bool {
		return len(h.Client.Keys(t.Context(), "railtoken:lock:{free*}").Val()) == 0
	})
}

// The handlers of a type do not agree how its tasks wait.
func TestATypeWithTwoParkersHasNone(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	single, err := locking.NewSingle(r.Client, locking.SingleOptions{})
	r.OK(err)
	t.Cleanup(func() { _ = single.Close() })
	r.Engine.Colocate(locks.Colocated(single))
	one, two := &holds{solo: r, wait: anyWait}, &holds{solo: r, wait: anyWait}
	ran := make(chan string, 10)
	var mu sync.Mutex
	learn := []*holds{one, two, one}
	r.Serve(1, func(ctx context.Context, id string) error {
		run, err := r.Engine.Run(line.Task{Queue: "default", ID: id})
		if err != nil {
			return err
		}
		mu.Lock()
		if len(learn) > 0 {
			run.Learn("test", []string{"k"}, time.Minute, learn[0])
			learn = learn[1:]
		}
		mu.Unlock()
		if _, taken := run.Claim(); taken != nil {
			run.Reject(ctx, nil, taken)
		}
		ran <- id
		return errors.Join(errRefused, asynq.RevokeTask)
	})
	h := &holds{solo: r}
	for i := range 3 {
		h.record(fmt.Sprint(i), "k")
		receive(t, ran)
	}
	h.hold("k", time.Minute)
	h.record("x", "k")
	if id := receive(t, ran); id != "x" {
		t.Errorf("%s ran", id)
	}
	linetest.Until(t, "it is gone", func() bool { return len(r.Waiting("k")) == 0 })
}
