package intake_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/broker/intake"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The reply to the fetch of a task that was woken is lost. If the task does not take its key, its run must pass the wake on.
func TestARecalledTaskIsStillWoken(t *testing.T) {
	t.Parallel()
	for name, woken := range map[string]bool{"woken": true, "brought back by its timer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin, client := server.Client(t), server.Client(t)
			enqueue(t, admin, "default", 1)
			hash := "asynq:{default}:t:default0"
			admin.HSet(t.Context(), hash, "railtoken:wait", "a record")
			if woken {
				admin.HSet(t.Context(), hash, "railtoken:woken", time.Now().UnixMicro())
			}
			network := newOutage()
			client.AddHook(redistest.Hook(network.call))
			in := intake.New(client, intake.Options{Slots: 1})
			network.loseAFetch(t, in)
			redistest.Receive(t, in.Arrived(), patience)
			task, ok := in.Take()
			if !ok || task.Woken != woken || task.Wait != "a record" {
				t.Errorf("the recall has brought %+v, %v; want a task that was woken: %v", task, ok, woken)
			}
		})
	}
}

// The mark of a recall keeps the lost call from taking tasks, should it come later, and stays no longer than such a call may take.
func TestTheMarkOfARecallStaysForAMinute(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, client := server.Client(t), server.Client(t)
	network := newOutage()
	client.AddHook(redistest.Hook(network.call))
	in := intake.New(client, intake.Options{Slots: 1})
	network.loseAFetch(t, in)
	redistest.Receive(t, network.answered, patience)
	marks := admin.Keys(t.Context(), "asynq:{default}:recalled:*").Val()
	if len(marks) != 1 {
		t.Fatalf("the marks are %v", marks)
	}
	if left := admin.TTL(t.Context(), marks[0]).Val(); left < 30*time.Second || left > time.Minute {
		t.Errorf("the mark stays for %v", left)
	}
}

// The reply to an acknowledgement is lost, and with it that of its fetch. While that one is recalled, the acknowledgement of another
// task brings the next one.
func TestAnAcknowledgementBringsATaskBesideARecall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, client := server.Client(t), server.Client(t)
	enqueue(t, admin, "default", 4)
	in := intake.New(client, intake.Options{Slots: 2})
	if _, err := in.Fetch(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := in.Take(); !ok {
			t.Fatal("a task is missing")
		}
	}
	var lost, mended atomic.Bool
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !strings.HasPrefix(cmd.Name(), "eval") || mended.Load() {
			return next(ctx, cmd)
		}
		away := errors.New("connection reset by peer")
		if key := fmt.Sprint(cmd.Args()[3]); strings.HasSuffix(key, ":pending") { // the recall
			return redistest.Fail(cmd, away)
		}
		if err := next(ctx, cmd); err != nil || !lost.CompareAndSwap(false, true) {
			return err
		}
		return redistest.Fail(cmd, away)
	}))
	for _, id := range []string{"default0", "default1"} {
		if ok, err := in.Acknowledge(t.Context(), intake.Acknowledgement{
			Queue: "default", ID: id, Text: doneText, Keys: []string{"asynq:{default}:t:" + id, "asynq:{default}:active"}, Args: []any{id},
		}); !ok || err != nil {
			t.Fatalf("%s: %t, %v", id, ok, err)
		}
	}
	if task, ok := in.Take(); !ok || task.ID != "default3" {
		t.Errorf("asynq gets %+v, %t; want the one behind the task that is recalled", task.ID, ok)
	}
	mended.Store(true)
	in.Drain(t.Context())
}
