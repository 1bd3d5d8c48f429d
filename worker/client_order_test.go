package worker

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// sequenceOf returns the entries of the sequence of a key.
func sequenceOf(t testing.TB, client *redis.Client, key string) []string {
	t.Helper()
	members, err := client.ZRange(t.Context(), "railtoken:sequence:{"+key+"}", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return members
}

func TestLostReplyEnqueuesInOrderOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	for name, marker := range map[string]string{"task": "marked-type", "place": "railtoken:sequence:{place}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, replies := loseReply(t, server.Addr(), marker)
			c, inspect := producer(t, addr)
			info, err := c.EnqueueInOrder(t.Context(), name, "marked-type", order{"42"}, asynq.Queue(name))
			if err != nil || replies.Load() == 0 {
				t.Fatalf("%d replies, the first of which is lost, give %v", replies.Load(), err)
			}
			got, err := inspect.GetQueueInfo(name)
			if err != nil || got.Size != 1 {
				t.Errorf("%+v, %v; want one task", got, err)
			}
			if entries := sequenceOf(t, client, name); len(entries) != 1 || !strings.HasSuffix(entries[0], info.ID) {
				t.Errorf("the sequence is %v, want %s", entries, info.ID)
			}
		})
	}
}

// noSequence refuses to let a task join a sequence.
type noSequence struct{}

func (noSequence) DialHook(next redis.DialHook) redis.DialHook { return next }

func (noSequence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("railtoken:sequence:{k}")) {
			cmd.SetErr(net.ErrClosed)
			return net.ErrClosed
		}
		return next(ctx, cmd)
	}
}

func (noSequence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestATaskWithoutAPositionIsReportedAsEnqueued(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, inspect := producer(t, server.Addr())
	c.conn.AddHook(noSequence{})
	info, err := c.EnqueueInOrder(t.Context(), "k", "audit", order{"42"})
	if !errors.Is(err, delayqueue.ErrNotInSequence) || !errors.Is(err, net.ErrClosed) || info == nil {
		t.Fatalf("enqueueing gives %+v, %v", info, err)
	}
	wantParts(t, err, `"audit"`, "do not enqueue it again")
	if _, err := inspect.GetTaskInfo("default", info.ID); err != nil {
		t.Errorf("the task is not there: %v", err)
	}
	if entries := sequenceOf(t, server.Client(t), "k"); len(entries) != 0 {
		t.Errorf("the sequence is %v", entries)
	}
}
