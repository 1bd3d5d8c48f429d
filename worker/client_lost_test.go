package worker

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// producer returns a client and an inspector of a Redis.
func producer(t testing.TB, addr string) (*Client, *asynq.Inspector) {
	t.Helper()
	c, err := NewClient(Redis{Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, asynq.NewInspectorFromRedisClient(c.conn)
}

// loseReply starts a proxy that loses the reply to the first command that has the marker in it and was executed. It
// returns its address, and how many such replies there were.
func loseReply(t testing.TB, target, marker string) (addr string, replies *atomic.Int32) {
	t.Helper()
	proxy, replies := redistest.NewProxy(t, target), new(atomic.Int32)
	proxy.Cut(func(request, reply []byte) bool {
		return bytes.Contains(request, []byte(marker)) && !bytes.HasPrefix(reply, []byte("-")) && replies.Add(1) == 1
	})
	return proxy.Addr(), replies
}

func TestLostReplyEnqueuesOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, opts := range map[string][]asynq.Option{
		"pending":   {asynq.Queue("pending")},
		"scheduled": {asynq.Queue("scheduled"), asynq.ProcessIn(time.Hour)},
		"unique":    {asynq.Queue("unique"), asynq.Unique(time.Hour)},
		"later":     {asynq.Queue("later"), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour)},
		"given ID":  {asynq.Queue("given ID"), asynq.TaskID("mine")},
		"archived":  {asynq.Queue("archived"), asynq.MaxRetry(0), asynq.Retention(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, replies := loseReply(t, server.Addr(), "marked-type")
			c, inspect := producer(t, addr)
			info, err := c.Enqueue(t.Context(), "marked-type", order{"42"}, opts...)
			if err != nil {
				t.Fatalf("a lost reply gives %v", err)
			}
			if replies.Load() == 0 {
				t.Fatal("no reply was lost")
			}
			if info.Queue != name || info.Type != "marked-type" || string(info.Payload) != `{"id":"42"}` {
				t.Errorf("the task is told to be %+v", info)
			}
			got, err := inspect.GetQueueInfo(name)
			if err != nil || got.Size != 1 {
				t.Errorf("%+v, %v; want one task", got, err)
			}
			if _, err := inspect.GetTaskInfo(name, info.ID); err != nil {
				t.Errorf("the task has not the ID that was told: %v", err)
			}
		})
	}
}
