package line_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// What a script that fetches a task makes of it.
const (
	admitted = "it comes with its lock"
	behind   = "it is parked"
	looks    = "it comes without a lock, and its run looks"
)

// fetchNext has a task, whose key is recorded, fetched before all others.
func (r *rig) fetchNext(id, order string) string {
	r.Helper()
	task := r.task(id)
	if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.Queue(r.name), asynq.TaskID(id)); err != nil {
		r.Fatal(err)
	}
	r.set(task, "railtoken:keys", r.key("k"))
	pending := task.Prefix() + "pending"
	r.Client.LRem(r.Context(), pending, 0, id)
	r.Client.RPush(r.Context(), pending, id)
	got, _ := r.fetch(map[string]int{r.name: 1}, 1, order).Take()
	switch {
	case slices.Contains(r.Waiting("k"), id):
		return behind
	case got.ID != id:
		return "it has gone"
	case got.Taken != nil:
		return admitted
	}
	return looks
}

// fetch fetches tasks of some queues in one call.
func (r *rig) fetch(queues map[string]int, most int, order string) *intake.Intake {
	r.Helper()
	return r.fetchParking(queues, most, order, r.Engine.ParkingAtFetch())
}

// fetchParking does so with a parking of the test's.
func (r *rig) fetchParking(queues map[string]int, most int, order string, parking *intake.Parking) *intake.Intake {
	r.Helper()
	single, err := locking.NewSingle(r.Client, locking.SingleOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = single.Close() })
	var types colocated.Types
	types.Learn("test", time.Minute, colocated.Wait{After: wake, Most: wake, Order: order})
	in := intake.New(r.Client, intake.Options{
		Queues: queues, Slots: most, Locks: locks.Colocated(single), Types: &types, Parking: parking,
	})
	if _, err := in.Fetch(r.Context(), r.name); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { in.Drain(r.Context()) })
	return in
}

// A fetch decides about the head of a sequence what a run would decide, or leaves it to the run.
func TestAFetchAdmitsTheHeadAlone(t *testing.T) {
	t.Parallel()
	for name, row := range heads {
		for order, strict := range map[string]bool{"fifo": false, "strict": true} {
			t.Run(name+", "+order, func(t *testing.T) {
				t.Parallel()
				r, want := newRig(t, "standalone"), admitted
				switch stays := row.fifo && !strict || row.strict && strict; {
				case row.lost, name == "the recoverer may be at it", name == "its deadline has passed":
					want = looks
				case stays:
					want = behind
				}
				first := r.begun("first")
				if at, err := r.Engine.Join(t.Context(), first, r.key("k"), line.JoinOptions{Strict: strict}); err != nil || at.Ahead > 0 {
					t.Fatal(at, err)
				}
				row.becomes(r, first)
				if got := r.fetchNext("next", order); got != want {
					t.Errorf("the next: %s; want: %s", got, want)
				}
				entry := r.task("next").Entry()
				if at := r.Client.ZScore(t.Context(), line.Names{}.Sequence(r.key("k")), entry).Val(); want == admitted && at == math.Floor(at) {
					t.Errorf("its place %f does not say that it has begun: a worker that dies with it counts as no failure", at)
				}
				watched := r.Client.ZScore(t.Context(), r.index()+":owed", r.registry("k")).Err() == nil
				if failed := name == "it is retried soon" || strict && name == "it has failed"; watched != failed {
					t.Errorf("somebody looks after the head: %v, want %v", watched, failed)
				}
			})
		}
	}
}

// A task whose producer has put it first takes its lock as it is fetched, and is noted as one that has begun to work.
func TestAFetchAdmitsTheHeadThatHasJoined(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	if _, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(r.name), asynq.TaskID("head")); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.fetch(map[string]int{r.name: 1}, 1, "strict").Take(); got.ID != "head" || got.Taken == nil {
		t.Errorf("fetched is %+v", got)
	}
	at := r.Client.ZScore(t.Context(), line.Names{}.Sequence(r.key("k")), r.task("head").Entry()).Val()
	if now := float64(time.Now().UnixMicro()); at == math.Floor(at) || at > now || at < now-60e6 {
		t.Errorf("its place is %f", at)
	}
}

func TestARefusalSaysHowLongTheHeadTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		becomes func(r *rig, head line.Task)
		want    time.Duration
	}{
		"it is pending": {func(*rig, line.Task) {}, line.LeftAfter},
		"it is parked":  {func(r *rig, head line.Task) { r.Park(head, "other") }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "standalone")
			head := line.Task{Queue: r.name + "-other", ID: "head"}
			for _, task := range []line.Task{head, r.task("next")} {
				if _, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(task.Queue), asynq.TaskID(task.ID)); err != nil {
					t.Fatal(err)
				}
			}
			c.becomes(r, head)
			parking := r.Engine.ParkingAtFetch()
			var took []time.Duration
			tell := parking.Parked
			parking.Parked = func(all []intake.Parked) {
				for _, p := range all {
					held, _ := errors.AsType[*locking.HeldError](p.Held)
					took = append(took, held.Holder.Remaining)
				}
				tell(all)
			}
			r.fetchParking(map[string]int{r.name: 1}, 1, "strict", parking)
			if len(took) != 1 || (took[0]-c.want).Abs() > c.want/4 {
				t.Errorf("the next is told %v, want %v", took, c.want)
			}
		})
	}
}

// The first task of a sequence is admitted although another one of its key was refused in the same call.
func TestAFetchAdmitsTheHeadBehindARefusedTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	for _, id := range []string{"head", "second"} { // they are fetched in the opposite order
		if _, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(r.name), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	pending := r.task("head").Prefix() + "pending"
	r.Client.RPopLPush(t.Context(), pending, pending)
	if got := r.fetchNext("third", "strict"); got != behind {
		t.Errorf("the third: %s", got)
	}
	if got := r.State(r.task("head")); got != asynq.TaskStateActive {
		t.Errorf("the head is %v", got)
	}
	if waiting := r.Waiting("k"); !slices.Equal(waiting, []string{"third", "second"}) {
		t.Errorf("%v wait", waiting)
	}
	if n := r.Client.Exists(t.Context(), "railtoken:lock:{"+r.key("k")+"}").Val(); n != 1 {
		t.Error("nobody has the lock")
	}
}

// Tasks of one key that a call parks, from several queues, stay in their queues.
func TestAFetchParksEachTaskInItsQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	other := r.name + "-other"
	if got := r.fetchNext("head", "strict"); got != admitted {
		t.Fatalf("the head: %s", got)
	}
	queues := map[string]int{r.name: 1, other: 1}
	for queue := range queues {
		for _, id := range []string{"a", "b"} {
			if _, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(queue), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	parking := r.Engine.ParkingAtFetch()
	var holders []string
	tell := parking.Parked
	parking.Parked = func(all []intake.Parked) {
		for _, p := range all {
			held, _ := errors.AsType[*locking.HeldError](p.Held)
			holders = append(holders, held.Holder.Label)
		}
		tell(all)
	}
	r.fetchParking(queues, 4, "strict", parking)
	if label := "the first task of the sequence, " + r.task("head").String() + " (active)"; len(holders) == 0 || slices.ContainsFunc(holders, func(h string) bool { return h != label }) {
		t.Errorf("they stand behind %q, want %q", holders, label)
	}
	for queue := range queues {
		for _, id := range []string{"a", "b"} {
			task := line.Task{Queue: queue, ID: id}
			if err := r.Client.ZScore(t.Context(), task.Prefix()+"retry", id).Err(); err != nil {
				t.Errorf("%v in the retry set of its queue: %v", task, err)
			}
			if err := r.Client.ZScore(t.Context(), line.Names{}.Waiters(r.key("k")), task.Entry()).Err(); err != nil {
				t.Errorf("%v among the waiters: %v", task, err)
			}
			if err := r.Client.LPos(t.Context(), task.Prefix()+"active", id, redis.LPosArgs{}).Err(); !errors.Is(err, redis.Nil) {
				t.Errorf("%v among the active tasks: %v", task, err)
			}
		}
	}
}
