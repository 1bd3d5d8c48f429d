package intake_test

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// parksInAList is a script that puts tasks into the list "parked".
const parksInAList = `
return function(group, id)
  group.since, group.ahead = '1000000', 3
  redis.call('LREM', group.prefix .. 'active', 1, id)
  redis.call('LPUSH', 'parked', id)
  return true
end`

// crowd is a Redis with so many pending tasks of the held key "hot", and the options of an Intake that parks them. The
// channel has what it is told of.
func crowd(t *testing.T, server *redistest.Server, tasks int) (admin *redis.Client, opts intake.Options, told chan []intake.Parked) {
	t.Helper()
	admin = server.Client(t)
	single, err := locking.NewSingle(admin, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	if _, err := single.Acquire(t.Context(), []string{"hot"}, locking.Options{TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, admin, "default", tasks)
	for i := range tasks {
		admin.HSet(t.Context(), fmt.Sprint("asynq:{default}:t:default", i), "railtoken:keys", "hot")
	}
	types := &colocated.Types{}
	types.Learn("test", time.Minute, colocated.Wait{After: time.Second, Most: time.Minute})
	told = make(chan []intake.Parked, 10)
	return admin, intake.Options{Slots: 4, Locks: locks.Colocated(single), Types: types, Parking: &intake.Parking{
		Source: parksInAList, Parked: func(groups []intake.Parked) { told <- groups },
	}}, told
}

func TestOneFetchParksAtMostAHundredTasks(t *testing.T) {
	t.Parallel()
	admin, opts, told := crowd(t, redistest.Start(t), 230)
	in := intake.New(admin, opts)
	for i, want := range []int{100, 100, 30} {
		more, err := in.Fetch(t.Context(), "default")
		if err != nil || more != (want == 100) {
			t.Fatalf("fetch %d: there are more is %v, error %v", i, more, err)
		}
		groups := <-told
		if len(groups) != 1 {
			t.Fatalf("it tells of %+v", groups)
		}
		g := groups[0]
		if len(g.IDs) != want || g.IDs[0] != fmt.Sprint("default", 100*i) || g.Queue != "default" || g.Type != "test" ||
			g.Ahead != 3 || !g.First.Equal(time.Unix(1, 0)) || len(g.Keys) != 1 || g.Keys[0] != "hot" || g.Held == nil {
			t.Errorf("it tells of %d tasks: %+v", len(g.IDs), g)
		}
	}
	if task, ok := in.Take(); ok {
		t.Errorf("asynq gets %+v", task)
	}
}

// The reply to a fetch is lost that has parked tasks. They wait, and a copy of the fetch that comes later parks no others.
func TestAFetchThatWasRecalledParksNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, opts, told := crowd(t, server, 3)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), 200*time.Millisecond })
	in := intake.New(client, opts)
	if _, err := in.Fetch(t.Context(), "default"); err != nil { // the script is known then
		t.Fatal(err)
	}
	if n := len((<-told)[0].IDs); n != 3 {
		t.Fatalf("%d tasks were parked", n)
	}
	again := func() {
		t.Helper()
		for range 3 {
			id := admin.RPop(t.Context(), "parked").Val()
			admin.LPush(t.Context(), "asynq:{default}:pending", id)
		}
	}
	again()
	var fetches atomic.Int64
	proxy.Cut(func(request, _ []byte) bool {
		return bytes.Contains(request, []byte("}:paused")) && fetches.Add(1) == 1
	})
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	if n := admin.LLen(t.Context(), "parked").Val(); n != 3 || len(told) > 0 {
		t.Errorf("%d tasks are parked, and %d calls have told of it, want 3 and none", n, len(told))
	}
	again()
	held := proxy.Hold(func(request []byte) bool { return bytes.Contains(request, []byte("}:paused")) })
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	redistest.Receive(t, held.Caught, patience)
	held.Deliver()
	if n := admin.LLen(t.Context(), "parked").Val(); n != 0 {
		t.Errorf("%d tasks were parked by a fetch that came late", n)
	}
}

// Another program has recorded keys that are no encodings. The tasks of the same reply come all the same.
func TestAParkedTaskOfUnreadableKeysLosesNoOther(t *testing.T) {
	t.Parallel()
	admin, opts, told := crowd(t, redistest.Start(t), 4)
	for id, keys := range map[string]string{"default1": "hot %zz", "default2": "cold"} {
		admin.HSet(t.Context(), "asynq:{default}:t:"+id, "railtoken:keys", keys)
	}
	in := intake.New(admin, opts)
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Error(err)
	}
	if task, ok := in.Take(); !ok || task.ID != "default2" || task.Taken == nil {
		t.Errorf("asynq gets %+v", task)
	}
	if n := admin.LLen(t.Context(), "parked").Val(); n != 3 {
		t.Errorf("%d tasks are parked, want 3", n)
	}
	select {
	case groups := <-told:
		if len(groups) != 1 || len(groups[0].IDs) != 2 {
			t.Errorf("it tells of %+v", groups)
		}
	default:
		t.Error("it tells of no task")
	}
}

// A task whose keys are found in it is parked by the call that would have taken its locks, as one that has waited: its keys are recorded for
// the wake, and it is in no run.
func TestATaskWhoseKeysAreFoundIsParkedLikeOthers(t *testing.T) {
	t.Parallel()
	admin, opts, told := crowd(t, redistest.Start(t), 2)
	for _, id := range []string{"default0", "default1"} {
		admin.HDel(t.Context(), "asynq:{default}:t:"+id, "railtoken:keys")
	}
	opts.KeysIn = func(string) string { return "hot" }
	began := time.Now()
	in := intake.New(admin, opts)
	eventually(t, "both are parked", func() bool {
		if _, err := in.Fetch(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		return admin.LLen(t.Context(), "parked").Val() == 2
	})
	if groups := <-told; len(groups) != 1 || len(groups[0].IDs) != 2 || groups[0].Keys[0] != "hot" {
		t.Errorf("it tells of %+v", groups)
	}
	for _, id := range []string{"default0", "default1"} {
		task := admin.HGetAll(t.Context(), "asynq:{default}:t:"+id).Val()
		since, err := strconv.ParseInt(task["pending_since"], 10, 64)
		if err != nil || time.Unix(0, since).Before(began) || task["railtoken:keys"] != "hot" {
			t.Errorf("%s has %v", id, task)
		}
	}
	if n := admin.ZCard(t.Context(), "asynq:{default}:lease").Val(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
