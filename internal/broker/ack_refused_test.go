package broker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/ends"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// marking marks the end of each task.
type marking struct{ witness }

func (*marking) Ending(Acknowledgement) *ends.Ending {
	return &ends.Ending{Key: "railtoken:ends:{default}:completed", Member: "a", Told: func() {}}
}

// The first copy of an acknowledgement is refused: the slot of the queue moves, or its master is being replaced and asynq repeats it. The
// second one ends its own run, with the mark of the end, and no other run. It makes no difference whether the master knows asynq's script,
// which a stock server may have sent, and whether this process has sent it before.
func TestASecondAcknowledgementEndsItsOwnRunAlone(t *testing.T) { // not beside others: what this process has sent is forgotten
	for _, oneNode := range []bool{true, false} {
		for _, moving := range []bool{true, false} {
			for _, known := range []bool{true, false} {
				for _, own := range []bool{true, false} {
					t.Run(fmt.Sprintf("one node %t, moving %t, script known %t, own run %t", oneNode, moving, known, own), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { secondAcknowledgement(t, oneNode, moving, known, own) })
					})
				}
			}
		}
	}
}

func secondAcknowledgement(t *testing.T, oneNode, moving, known, own bool) {
	t.Helper()
	texts.Delete(done)
	ctx := t.Context()
	m, admin := redistest.Virtual(t)
	var client redis.UniversalClient = redistest.VirtualCluster(t, m)
	if oneNode {
		client = redistest.Patient(t, m)
	}
	refusal := error(readonlyError{})
	if moving {
		refusal = errMoving
	}
	var refuse atomic.Bool
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") && refuse.Swap(false) {
			return redistest.Fail(cmd, refusal)
		}
		return next(ctx, cmd)
	}))
	conn := New(client, Options{
		Slots: 2, Marks: true, Tasks: &marking{witness{answers: func(Acknowledgement) (bool, error) { return false, nil }}},
	})
	if known {
		admin.ScriptLoad(ctx, doneText)
	}
	if _, err := asynq.NewClientFromRedisClient(admin).Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	if cmd, _ := conn.fetch(ctx, queueKeys); cmd.Err() != nil {
		t.Fatal(cmd.Err())
	}
	if !own {
		admin.HSet(ctx, "asynq:{default}:t:a", "pending_since", "another")
	}
	refuse.Store(true)
	err := ack(ctx, conn)
	if !moving {
		over, cancel := context.WithCancel(ctx)
		cancel()
		err = ack(over, conn)
	}
	active, marks := admin.LLen(ctx, "asynq:{default}:active").Val(), admin.ZCard(ctx, "railtoken:ends:{default}:completed").Val()
	switch {
	case own && (active != 0 || marks != 1 || err != nil):
		t.Errorf("%d tasks are active, and %d ends are marked: %v", active, marks, err)
	case !own && (active != 1 || marks != 0):
		t.Errorf("the run of another server has ended: %d tasks are active, and %d ends are marked", active, marks)
	}
}
