package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAWakePassesOverWaitersThatCannotRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.Park(r.Delayed("first paused", asynq.Queue(r.name+":paused")), "k")
		for i := range 110 { // more than one call of the script looks at
			r.Park(r.Delayed(fmt.Sprint("overdue", i), asynq.Deadline(time.Now().Add(-time.Minute))), "k")
			r.Park(r.Delayed(fmt.Sprint("paused", i), asynq.Queue(r.name+":paused")), "k")
		}
		live := []line.Task{r.Delayed("a", asynq.Deadline(time.Now().Add(time.Hour))), r.Delayed("b")}
		for _, task := range live {
			r.Park(task, "k")
		}
		if err := r.Inspect.PauseQueue(r.name + ":paused"); err != nil {
			t.Fatal(err)
		}
		for _, want := range live {
			if woken := r.Wake("k"); woken.First() != want {
				t.Errorf("woke %+v, want %s", woken, want)
			}
		}
		if got := r.Waiting("k"); len(got) != 111 || got[0] != "first paused" {
			t.Errorf("in line are %d, %v...: only those of the paused queue keep their places", len(got), got[:1])
		}
		if n := len(r.parked()); n != 111 {
			t.Errorf("%d are in the index", n)
		}
	})
}

func TestOneWaiterOfAPausedQueueGoesAheadInIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		if _, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name),
			asynq.TaskID("backlog")); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			r.Park(r.Delayed(id), "k")
		}
		if err := r.Inspect.PauseQueue(r.name); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if woken := r.Wake("k"); len(woken.Tasks) != 0 || woken.Pending || woken.Left != 2 {
				t.Errorf("woke %+v: nobody can run", woken)
			}
			if got := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(); !slices.Equal(got,
				[]string{"backlog", "a"}) {
				t.Errorf("pending are %v, want the first in line at the right end", got)
			}
			if got := r.Waiting("k"); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("in line are %v", got)
			}
		}
		if err := r.Inspect.UnpauseQueue(r.name); err != nil {
			t.Fatal(err)
		}
		if woken := r.Wake("k"); woken.First() != r.task("a") || r.State(r.task("a")) != asynq.TaskStatePending {
			t.Errorf("woke %+v", woken)
		}
	})
}

func TestAStarvedWaiterRunsIfNoOtherCan(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.Engine.Starve(r.name + ":starved")
		for _, id := range []string{"a", "b"} {
			r.Park(r.Delayed("starved "+id, asynq.Queue(r.name+":starved")), "k")
		}
		r.Park(r.Delayed("other"), "k")
		for _, want := range []string{"other", "starved a", "starved b"} {
			if woken := r.Wake("k"); woken.First().ID != want {
				t.Errorf("woke %+v, want %s", woken, want)
			}
		}
		if got := r.Waiting("k"); len(got) != 0 {
			t.Errorf("in line are %v", got)
		}
	})
}

func TestAWokenTaskThatNoServerFetchesIsReplaced(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ran := make(chan string, 10)
		r.Serve(1, func(_ context.Context, id string) error {
			ran <- id
			return nil
		})
		for _, queue := range []string{":abandoned", ":empty"} {
			for i := range 20 {
				r.Park(r.Delayed(fmt.Sprint(i), asynq.Queue(r.name+queue)), "k")
			}
		}
		for _, id := range []string{"live", "another"} {
			r.Park(r.Delayed(id), "k")
		}
		if woken := r.Wake("k"); woken.First().Queue != r.name+":abandoned" {
			t.Fatalf("woke %+v", woken)
		}
		if id := receive(t, ran); id != "live" {
			t.Errorf("in its stead %s ran", id)
		}
		// Its handler takes no key, so its end passes the wake on; which queues have no server is known by now.
		if id := receive(t, ran); id != "another" {
			t.Errorf("then %s ran", id)
		}
		if got := r.Waiting("k"); len(got) != 39 {
			t.Errorf("%d are in line", len(got))
		}
	})
}

// A wake looks for a waiter that is pending near the ends of the list alone.
func TestAWakeDoesNotSearchABacklogOfAMillion(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, "standalone", redistest.Start(t).Client(t))
	pending := "asynq:{" + r.name + "}:pending"
	fill := func() {
		ids := make([]any, 1000)
		for n := range ids {
			ids[n] = "1c9b8a6e-2f0d-4c53-9d1e-" + fmt.Sprint(100_000_000_000+n)
		}
		for range 500 {
			if err := r.Client.LPush(t.Context(), pending, ids...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	for i := range 10 {
		task := r.Delayed(fmt.Sprint("w", i))
		r.Park(task, "k")
		if err := r.Inspect.RunTask(task.Queue, task.ID); err != nil {
			t.Fatal(err)
		}
		r.Park(r.Delayed(fmt.Sprint("n", i)), "k")
	}
	fill()
	best := time.Hour
	for i := range 10 {
		began := time.Now()
		woken := r.Wake("k")
		best = min(best, time.Since(began))
		if woken.First().ID != fmt.Sprint("n", i) {
			t.Errorf("woke %+v, want the one behind the one that comes by itself", woken)
		}
	}
	if n := r.Client.LLen(t.Context(), pending).Val(); n < 1_000_000 {
		t.Errorf("%d are pending", n)
	}
	search := time.Hour
	for range 3 {
		began := time.Now()
		if err := r.Client.LPos(t.Context(), pending, "nobody", redis.LPosArgs{}).Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		search = min(search, time.Since(began))
	}
	t.Logf("a wake took %v, a search of the list %v", best, search)
	if best > search/2 {
		t.Errorf("a wake took %v, and a search of the whole list %v", best, search)
	}
}
