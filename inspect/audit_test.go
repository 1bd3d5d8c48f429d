package inspect_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
)

var drop = inspect.Steering{
	Action: inspect.ActionDrop, Key: "k", Task: delayqueue.Task{Queue: "default", ID: "a"}, By: "ann", Why: "ordered twice",
}

func TestAuditHasWhatWasDoneAndWhatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	err := r.inspect.Audited(t.Context(), drop, func(context.Context) (string, error) { return "deleted", nil })
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("it is gone")
	err = r.inspect.Audited(t.Context(), drop, func(context.Context) (string, error) { return "deleted", gone })
	if !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
	entries, err := r.inspect.Audit(t.Context(), 10)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []struct {
		outcome     inspect.Outcome
		result, err string
	}{{inspect.Failed, "", "it is gone"}, {inspect.Begun, "", ""}, {inspect.Done, "deleted", ""}, {inspect.Begun, "", ""}} {
		e := entries[i]
		if e.Action != drop.Action || e.Key != "k" || e.Task != drop.Task || e.By != "ann" || e.Why != "ordered twice" || e.At.IsZero() ||
			e.Outcome != want.outcome || e.Result != want.result || e.Err != want.err {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
}

func TestNothingIsDoneWithoutAnAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	called := false
	do := func(context.Context) (string, error) { called = true; return "", nil }
	if err := r.inspect.Audited(t.Context(), inspect.Steering{Action: inspect.ActionDrop}, do); err == nil || called {
		t.Errorf("nobody does it: %v", err)
	}
	nothing := inspect.Steering{Action: inspect.ActionDrop, By: "ann"}
	if err := r.inspect.Audited(t.Context(), nothing, do); err == nil || !strings.Contains(err.Error(), "Key and Task") || called {
		t.Errorf("it is done to nothing: %v", err)
	}
	r.client.Set(t.Context(), "railtoken:audit", "no stream", 0)
	if err := r.inspect.Audited(t.Context(), drop, do); err == nil || called {
		t.Errorf("the audit cannot be written: %v", err)
	}
}

// Earlier versions wrote no action.
func TestAnEntryWithoutAnActionIsADeposition(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.client.XAdd(t.Context(), &redis.XAddArgs{Stream: "railtoken:audit", Values: []any{"outcome", "done", "key", "k", "by", "ann"}})
	entries, err := r.inspect.Audit(t.Context(), 1)
	if err != nil || len(entries) != 1 || entries[0].Action != inspect.ActionDepose {
		t.Errorf("%+v, %v", entries, err)
	}
}
