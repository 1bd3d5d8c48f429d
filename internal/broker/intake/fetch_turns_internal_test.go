package intake

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// inTurns runs a test with an Intake of one slot whose lanes take turns.
func inTurns(t *testing.T, test func(t *testing.T, admin *redis.Client, in *Intake, l lanes.Lanes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		l, err := lanes.New(16)
		if err != nil {
			t.Fatal(err)
		}
		test(t, admin, New(redistest.VirtualCluster(t, m), Options{Queues: map[string]int{"orders": 1}, Slots: 1, Lanes: l}), l)
	})
}

// A Fetch that leaves tasks in another lane, or in its own, is to be followed by another one at once.
func TestAFetchTellsWhetherAPlaceHasMoreTasks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lanes []int // of the tasks
		more  bool
	}{
		"none": {}, "in no other": {lanes: []int{1}, more: true}, "in its lane": {lanes: []int{1, 1}, more: true}, "in another lane": {lanes: []int{1, 2}, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTurns(t, func(t *testing.T, admin *redis.Client, in *Intake, l lanes.Lanes) {
				if len(tt.lanes) == 0 {
					in.Hear(l.Queue("orders", 1))
				}
				for i, lane := range tt.lanes {
					queue, id := l.Queue("orders", lane), string(rune('a'+i))
					admin.HSet(t.Context(), asynqwire.Hash(queue, id), "msg", id, "state", "pending")
					admin.LPush(t.Context(), asynqwire.Pending(queue), id)
					in.Hear(queue)
				}
				more, err := in.Fetch(t.Context(), "orders")
				if err != nil || more != tt.more {
					t.Errorf("there are more is %t, error %v", more, err)
				}
				in.Drain(t.Context())
			})
		})
	}
}

// Behind tasks that a call has parked there may be others, even if none has come; a place without tasks is asked no more.
func TestAPlaceIsAskedAgainAfterItHasParkedTasks(t *testing.T) {
	t.Parallel()
	key := rediswire.Encode("k")
	for name, tt := range map[string]struct {
		parked []any
		again  bool
	}{
		"parked": {parked: []any{int64(0), []any{int64(1), "type", key, "held", "", int64(1), "id"}}, again: true},
		"none":   {parked: []any{int64(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTurns(t, func(t *testing.T, _ *redis.Client, in *Intake, l lanes.Lanes) {
				in.Hear(l.Queue("orders", 1))
				asks := in.turning.pick(nil, 1)
				if len(asks) != 1 {
					t.Fatalf("%d places are asked", len(asks))
				}
				p := asks[0].place
				_, n := in.slots.ask(p, 1, 0, asks[0].most)
				f := p.fetch(n, nil, true, asks[0].asks)
				f.locks = noLocks{}
				if _, err := f.answered([]any{tt.parked}, nil); err != nil {
					t.Fatal(err)
				}
				p.leave()
				if again := len(in.turning.pick(nil, 1)) == 1; again != tt.again {
					t.Errorf("it is asked again: %t", again)
				}
			})
		})
	}
}

func TestAFetchWithoutATurnHasNoTask(t *testing.T) {
	t.Parallel()
	inTurns(t, func(t *testing.T, _ *redis.Client, in *Intake, _ lanes.Lanes) {
		if more, err := in.Fetch(t.Context(), "orders"); more || !errors.Is(err, redis.Nil) {
			t.Errorf("while no place may have tasks: %t, %v", more, err)
		}
	})
}

// asynq pauses after a fetch that Redis refuses, and logs why.
func TestAFetchThatEachPlaceRefusesFails(t *testing.T) {
	t.Parallel()
	inTurns(t, func(t *testing.T, _ *redis.Client, in *Intake, l lanes.Lanes) {
		refused := refusal("ERR refused")
		in.client.AddHook(redistest.Hook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			return redistest.Fail(cmd, refused)
		}))
		in.Hear(l.Queue("orders", 1))
		if _, err := in.Fetch(t.Context(), "orders"); !errors.Is(err, refused) {
			t.Errorf("%v, want the refusal", err)
		}
	})
}

// refusal is an error of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// While an unanswered fetch is recalled in the background, no Fetch asks its place, which would hold up the others. Once there is an
// answer, it has its turns again.
func TestAPlaceIsAskedAgainAfterItsRecall(t *testing.T) {
	t.Parallel()
	inTurns(t, func(t *testing.T, admin *redis.Client, in *Intake, l lanes.Lanes) {
		var mended atomic.Bool
		in.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if mended.Load() || !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			return redistest.Fail(cmd, errors.New("connection reset by peer"))
		}))
		queue := l.Queue("orders", 1)
		in.Hear(queue)
		if _, err := in.Fetch(t.Context(), "orders"); err == nil {
			t.Fatal("the fetch was answered")
		}
		time.Sleep(restMost)
		if _, err := in.Fetch(t.Context(), "orders"); !errors.Is(err, redis.Nil) {
			t.Errorf("during the recall: %v, want no place to ask", err)
		}
		mended.Store(true)
		time.Sleep(2 * repeatMost)
		admin.HSet(t.Context(), asynqwire.Hash(queue, "a"), "msg", "a", "state", "pending")
		admin.LPush(t.Context(), asynqwire.Pending(queue), "a")
		in.Hear(queue)
		if _, err := in.Fetch(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if task, ok := in.Take(); !ok || task.ID != "a" {
			t.Errorf("after the recall comes %q, %t", task.ID, ok)
		}
		in.Drain(t.Context())
	})
}

// A Fetch has no answer for a while: then no other place of its master is asked, and asynq can go on.
func TestAPlaceThatIsLateIsAway(t *testing.T) {
	t.Parallel()
	inTurns(t, func(t *testing.T, _ *redis.Client, in *Intake, l lanes.Lanes) {
		hold := make(chan struct{})
		in.client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				<-hold
			}
			return next(ctx, cmd)
		}))
		in.Hear(l.Queue("orders", 1))
		fetched := make(chan error)
		go func() {
			_, err := in.Fetch(t.Context(), "orders")
			fetched <- err
		}()
		synctest.Wait()
		in.Late()
		in.Hear(l.Queue("orders", 2))
		if _, err := in.Fetch(t.Context(), "orders"); !errors.Is(err, redis.Nil) {
			t.Errorf("beside a place that is late: %v, want no place to ask", err)
		}
		close(hold)
		if err := <-fetched; err != nil {
			t.Fatal(err)
		}
		in.Late() // there is an answer by now
		if _, err := in.Fetch(t.Context(), "orders"); err != nil {
			t.Errorf("after the answer: %v", err)
		}
		in.Drain(t.Context())
	})
}

// A call cannot take the locks of a task whose keys are in another lane.
func TestALaneReachesItsOwnLocksAlone(t *testing.T) {
	t.Parallel()
	lane := &place{tag: "{@3-abc"}
	for recorded, reaches := range map[string]bool{
		"{@3-abc}a": true, "{@3-abc}a {@3-abc}b": true, "{@4-abc}a": false, "{@3-abc}a {@4-abc}b": false, "a": false,
	} {
		if lane.reaches(recorded) != reaches || !(&place{}).reaches(recorded) {
			t.Errorf("%q", recorded)
		}
	}
}
