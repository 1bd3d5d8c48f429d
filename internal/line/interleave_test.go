package line_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// before does something just before the nth round trip of a client.
type beforeNth struct {
	nth int
	do  func()

	mu sync.Mutex // of nth: follow-ups make round trips of their own
}

func (b *beforeNth) trip() {
	b.mu.Lock()
	b.nth--
	now := b.nth == 0
	b.mu.Unlock()
	if now {
		b.do()
	}
}

func (b *beforeNth) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *beforeNth) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.trip()
		return next(ctx, cmd)
	}
}

func (b *beforeNth) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.trip()
		return next(ctx, cmds)
	}
}

// The round trips of a wake on a Cluster.
const (
	beforeTheTake      = 3
	beforeThePromotion = 4
)

func TestWhatHappensBetweenTheStepsOfAWakeSwallowsNoWake(t *testing.T) {
	t.Parallel()
	if err := line.LoadSteps(t.Context(), shared.clientOf(t, "cluster")); err != nil {
		t.Fatal(err)
	}
	// In line are a and b. This becomes of a, and then the wake has woken these, and these are still in line and in the
	// index.
	for name, tt := range map[string]struct {
		nth             int
		happens         func(r *rig, a line.Task)
		woken, in, also []string
	}{
		"nothing": {
			beforeTheTake, func(*rig, line.Task) {},
			[]string{"a"},
			[]string{"b"},
			nil,
		},
		"another wake takes it": {
			beforeTheTake, func(r *rig, _ line.Task) { r.Wake("k") },
			[]string{"b"},
			nil, nil,
		},
		"its timer brings it back": {
			beforeTheTake, func(r *rig, a line.Task) { r.Begin(a) },
			[]string{"b"},
			nil, nil,
		},
		"its timer brings it back after it was taken": {
			beforeThePromotion, func(r *rig, a line.Task) { r.Begin(a) },
			[]string{"b"},
			nil, nil,
		},
		"its timer brings it back, and it parks again": {
			beforeThePromotion, func(r *rig, a line.Task) { r.Park(a, "k") },
			[]string{"a"},
			[]string{"a", "b"},
			nil,
		},
		"another wake has it first, and it parks again": {
			beforeTheTake, func(r *rig, a line.Task) {
				r.Wake("k")
				r.Park(a, "k") // this entry is the one that is taken
			},
			[]string{"a"},
			[]string{"b"},
			nil,
		},
		"it is deleted": {
			beforeTheTake, func(r *rig, a line.Task) { r.Remove(a) },
			[]string{"b"},
			nil, nil,
		},
		"it is deleted after it was taken": {
			beforeThePromotion, func(r *rig, a line.Task) { r.Remove(a) },
			[]string{"b"},
			nil, nil,
		},
		"it changes to another line": {
			beforeThePromotion, func(r *rig, a line.Task) {
				r.Park(a, "another") // which passes the wake on that it seems to have had
			},
			nil, nil,
			[]string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "cluster")
			a, b := r.Delayed("a"), r.Delayed("b")
			r.Park(a, "k")
			r.Park(b, "k")
			client := shared.clientOf(t, "cluster")
			queue := r.newQueue(client, line.Options{})
			client.AddHook(&beforeNth{nth: tt.nth, do: func() { tt.happens(r, a) }})
			woken, err := queue.Wake(t.Context(), r.key("k"), line.WakeOptions{})
			if err != nil || woken.Pending {
				t.Errorf("woke %+v, %v", woken, err)
			}
			var ids []string
			for _, task := range woken.Tasks {
				ids = append(ids, task.ID)
			}
			if !slices.Equal(ids, tt.woken) {
				t.Errorf("woke %v, want %v", ids, tt.woken)
			}
			if got := r.Waiting("k"); !slices.Equal(got, append([]string{}, tt.in...)) {
				t.Errorf("in line are %v, want %v", got, tt.in)
			}
			var parked []line.Task
			for _, id := range slices.Concat(tt.in, tt.also) {
				parked = append(parked, r.task(id))
			}
			r.indexed("after the wake", parked...)
		})
	}
}

func TestAWaiterThatWasTakenIsPromotedThoughTheCallerGivesUp(t *testing.T) {
	t.Parallel()
	if err := line.LoadSteps(t.Context(), shared.clientOf(t, "cluster")); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "cluster")
	task := r.Delayed("a")
	r.Park(task, "k")
	ctx, cancel := context.WithCancel(t.Context())
	client := shared.clientOf(t, "cluster")
	queue := r.newQueue(client, line.Options{})
	client.AddHook(&beforeNth{nth: beforeThePromotion, do: cancel})
	woken, err := queue.Wake(ctx, r.key("k"), line.WakeOptions{})
	if err != nil || woken.First() != task {
		t.Errorf("woke %+v, %v", woken, err)
	}
	if state := r.State(task); state != asynq.TaskStatePending {
		t.Errorf("it is %v", state)
	}
}
