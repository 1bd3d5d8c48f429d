package line_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Calls on tasks whose queue moves from one node to another.
var movingCalls = map[string]struct {
	most     time.Duration // what the call gets: an operator's goes on until the slot has arrived
	archived bool
	call     func(ctx context.Context, r *rig, t line.Task) error
	done     asynq.TaskState // what becomes of the task at last; 0 when it is deleted or stays
}{
	"wake": {limit, false, func(ctx context.Context, r *rig, _ line.Task) error {
		_, err := r.Engine.Wake(ctx, r.key("k"), line.WakeOptions{})
		return err
	}, asynq.TaskStatePending},
	"wake a task": {limit, false, func(ctx context.Context, r *rig, t line.Task) error {
		_, err := r.Engine.WakeTask(ctx, r.key("k"), t)
		return err
	}, asynq.TaskStatePending},
	"drop": {50 * time.Millisecond, false, func(ctx context.Context, r *rig, t line.Task) error {
		return r.inspector().Drop(ctx, delayqueue.Task(t))
	}, 0},
	"cancel": {50 * time.Millisecond, false, func(ctx context.Context, r *rig, t line.Task) error {
		_, err := r.Engine.Cancel(ctx, t, line.Cancellation{Discard: true, By: "ann"})
		return err
	}, 0},
	"latest": {50 * time.Millisecond, false, func(ctx context.Context, r *rig, t line.Task) error {
		l := line.Latest{Record: "a"}
		r.Client.HSet(ctx, "railtoken:latest:{"+r.name+"}:"+l.Record, "newest", t.ID, "number", 1, "first", 1)
		_, placed, err := r.Engine.EnqueueLatest(ctx, asynq.NewTask("test", []byte("new")), nil, l, asynq.Queue(r.name))
		if err == nil && placed.Task != t {
			r.Errorf("beside %v waits %v", t, placed.Task)
		}
		return err
	}, 0},
	"replay": {
		50 * time.Millisecond, true, func(ctx context.Context, r *rig, t line.Task) error {
			return r.inspector().Replay(ctx, delayqueue.Task(t))
		}, 0,
	},
}

// The keys of a queue are on two nodes while its slot moves, in every way in which they can be.
func TestNoCallLosesATaskWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client := cluster.Client(t)
	for name, c := range movingCalls {
		t.Run(name, func(t *testing.T) {
			for moved := range 8 {
				for _, backlog := range []bool{false, true} {
					r := newRigOn(t, "cluster", client)
					task := r.Delayed("a", asynq.Unique(time.Hour))
					if c.archived {
						if err := r.Inspect.ArchiveTask(task.Queue, task.ID); err != nil {
							t.Fatal(err)
						}
					} else {
						r.Park(task, "k")
					}
					if backlog {
						if _, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name),
							asynq.TaskID("b")); err != nil {
							t.Fatal(err)
						}
					}
					prefix := "asynq:{" + r.name + "}:"
					move := r.beginMove(cluster)
					for i, key := range []string{
						hash(task),
						prefix + map[bool]string{true: "archived", false: "retry"}[c.archived], prefix + "pending",
					} {
						if moved>>i&1 == 1 {
							move.Keys(t, key)
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), c.most)
					err := c.call(ctx, r, task)
					cancel()
					move.Finish(t)
					if c.done != 0 {
						r.Become(task, c.done)
						if lists := r.listsOf(task); !slices.Equal(lists, []string{"pending"}) {
							t.Errorf("%03b moved, backlog %v: in the end in the lists %v", moved, backlog, lists)
						}
						continue
					}
					state, lists := client.HGet(t.Context(), hash(task), "state").Val(), r.listsOf(task)
					if want := map[bool]int{true: 1, false: 0}[state != ""]; len(lists) != want || want == 1 &&
						lists[0] != state {
						t.Errorf("%03b moved, backlog %v: %v: state %q, in the lists %v", moved, backlog, err, state,
							lists)
					}
					if err := c.call(t.Context(), r, task); state != "" &&
						(err == nil) != (state == "archived" || state == "retry") {
						t.Errorf("%03b moved, backlog %v: after the move of a %s task: %v", moved, backlog, state, err)
					}
				}
			}
		})
	}
}

// asynq repeats what was refused.
func TestATaskParksOnceThoughItsSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	client := cluster.Client(t)
	for moved := range 16 {
		r := newRigOn(t, "cluster", client)
		r.Park(r.Delayed("other"), "another")
		task, prefix := r.begun("a"), "asynq:{"+r.name+"}:"
		move := r.beginMove(cluster)
		for i, key := range []string{hash(task), prefix + "active", prefix + "lease", prefix + "retry"} {
			if moved>>i&1 == 1 {
				move.Keys(t, key)
			}
		}
		park := func(most time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			_, err := r.Engine.Park(ctx, task, r.key("k"), line.ParkOptions{RetryAfter: time.Hour}.Of("run"))
			return err
		}
		first := park(50 * time.Millisecond)
		move.Finish(t)
		if lists := r.listsOf(task); len(lists) != 1 || lists[0] != r.State(task).String() {
			t.Errorf("%04b moved, %v: it is %v, and in the lists %v", moved, first, r.State(task), lists)
		}
		if err := park(limit); err != nil {
			t.Errorf("%04b moved: %v", moved, err)
		}
		n := r.conflicts(task)
		if lists := r.listsOf(task); !slices.Equal(lists, []string{"retry"}) ||
			!slices.Equal(r.Waiting("k"), []string{"a"}) || n != 1 {
			t.Errorf("%04b moved, %v: in the end in the lists %v, in line %v, and has met %d", moved, first, lists,
				r.Waiting("k"), n)
		}
	}
}

func TestCloseEndsTheWakesUnderWay(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	r := newRigOn(t, "cluster", cluster.Client(t))
	task := r.Delayed("a")
	r.Park(task, "k")
	move := r.beginMove(cluster)
	move.Keys(t, hash(task))
	if woken := r.Wake("k"); !woken.Pending || len(woken.Tasks) != 0 {
		t.Errorf("woke %+v while its slot moves", woken)
	}
	closed := make(chan error, 1)
	go func() { closed <- r.Engine.Close() }()
	if err := receive(t, closed); err != nil {
		t.Error(err)
	}
	if woken := r.Wake("k"); woken.Pending {
		t.Error("a closed queue goes on in the background")
	}
	move.Finish(t)
	if got := r.Waiting("k"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("in line are %v", got)
	}
	if woken := r.Wake("k"); woken.First() != task {
		t.Errorf("then woke %+v", woken)
	}
}

// beginMove begins to move the slot of the rig's queue to another node.
func (r *rig) beginMove(cluster *redistest.Cluster) *redistest.Move {
	r.Helper()
	slot := int(r.Client.ClusterKeySlot(r.Context(), "asynq:{"+r.name+"}:").Val())
	to := cluster.Nodes()[0]
	if slot < 8192 {
		to = cluster.Nodes()[1]
	}
	return cluster.BeginMove(r, slot, to)
}

// listsOf returns the lists and sets of its queue that have a task, once for each time.
func (r *rig) listsOf(t line.Task) (lists []string) {
	r.Helper()
	for _, list := range []string{"pending", "active"} {
		for _, id := range r.Client.LRange(r.Context(), "asynq:{"+t.Queue+"}:"+list, 0, -1).Val() {
			if id == t.ID {
				lists = append(lists, list)
			}
		}
	}
	for _, set := range []string{"scheduled", "retry", "archived"} {
		if r.Client.ZScore(r.Context(), "asynq:{"+t.Queue+"}:"+set, t.ID).Err() == nil {
			lists = append(lists, set)
		}
	}
	return lists
}
