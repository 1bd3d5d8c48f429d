package intake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/rediswire"
)

func TestAFetchSaysWhichTasksItHasTaken(t *testing.T) {
	t.Parallel()
	r := reader{call: "fetch", names: []string{"a", "b"}}
	reply := []any{
		int64(2), "id1", int64(7), "message", nil, nil, nil,
		// its hash is gone
		int64(1), "gone", int64(8), nil, nil, nil, nil,
		int64(1), "id3", int64(9), "other",
		[]any{"wait", "1500", "sequence"},
		"keys", nil,
	}
	got, err := r.read(reply)
	want := []Task{
		{Queue: "b", ID: "id1", Run: "fetch.7", Message: "message"},
		{
			Queue: "a", ID: "id3", Run: "fetch.9", Message: "other", Recorded: "keys", Wait: "wait", Sequence: "sequence", Woken: true,
			WokenFor: 1500 * time.Microsecond,
		},
	}
	if err != nil || fmt.Sprintf("%+v", got.tasks) != fmt.Sprintf("%+v", want) || got.parked != nil || got.more {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for name, reply := range map[string]any{
		"no list": "x", "part of a task": reply[:5], "no number": []any{int64(1), "id", "x", "message", nil, nil, nil},
		"no queue": []any{int64(0), "id", int64(1), "message", nil, nil, nil}, "another queue": []any{int64(3), "id", int64(1), "message", nil, nil, nil},
		"parked, without locks": append(reply[:7:7], []any{int64(0), []any{int64(1)}}), "no list of parked ones": append(reply[:7:7], "x"),
	} {
		if _, err := r.read(reply); !errors.Is(err, errReply) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.read([]any{int64(1), "id", "x", "message", nil, nil, nil}); err == nil || !strings.HasSuffix(err.Error(), "number x") {
		t.Errorf("the error does not say what is no number: %v", err)
	}
	for stopped, more := range map[int64]bool{0: false, 1: true} { // the messages were too long for one call
		if got, err := r.read(append(reply[:7:7], []any{stopped})); err != nil || len(got.tasks) != 1 || got.more != more {
			t.Errorf("stopped %d: %+v, %v", stopped, got, err)
		}
	}
	if none, err := r.read([]any{}); err != nil || len(none.tasks) != 0 {
		t.Errorf("none: %+v, %v", none, err)
	}
}

func TestAMessageSaysItsType(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"": "", "\n": "", "\n\x00": "", "\n\x01": "", "\n\x01x": "x", "\n\x04test more": "test", "\n\x05test": "", "\n\x04test": "test",
	} {
		if got := typeOf(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func TestAnOrderThatNeverChangesIsSentOnce(t *testing.T) {
	t.Parallel()
	strict := newOrder(map[string]int{"a": 2, "b": 1}, true)
	random := newOrder(map[string]int{"a": 2, "b": 1}, false)
	for _, n := range []int{0, 1, 5} {
		if got := len(strict.orders(n, 0)); got != min(n, 1) {
			t.Errorf("strict: %d orders for %d tasks", got, n)
		}
		if got := len(random.orders(n, 0)); got != n {
			t.Errorf("by weights: %d orders for %d tasks", got, n)
		}
	}
}

func TestAServerHasASlot(t *testing.T) {
	t.Parallel()
	if _, n := newSlots(0).ask(nil, 0, 0, -1); n != 1 {
		t.Errorf("%d tasks are asked for", n)
	}
	if _, n := newSlots(3).ask(nil, 0, 0, -1); n != 3 {
		t.Errorf("%d tasks are asked for three slots", n)
	}
}

// noLocks are locks of which one is held by what the reply says.
type noLocks struct{ colocated.Locks }

func (noLocks) Refusal(keys []string, reply any) error { return fmt.Errorf("%v: %v", keys, reply) }

func TestAFetchSaysWhichTasksItHasParked(t *testing.T) {
	t.Parallel()
	r := reader{call: "fetch", names: []string{"a", "b"}, asking: asking{locks: noLocks{}}}
	key := rediswire.Encode("k")
	group := []any{int64(2), "type", key, "held", "1000001", int64(3), "id1", "id2"}
	got, err := r.read([]any{[]any{int64(1), group, []any{int64(1), "other", key, "held", "", int64(0)}, []any{int64(1), "bad", "%x", "", "", int64(0)}}})
	if err != nil || !got.more || len(got.parked) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	first, second := got.parked[0], got.parked[1]
	if first.Queue != "b" || first.Type != "type" || !slices.Equal(first.IDs, []string{"id1", "id2"}) || first.Ahead != 3 ||
		!first.First.Equal(time.UnixMicro(1000001)) || !slices.Equal(first.Keys, []string{"k"}) || first.Held.Error() != "[k]: held" {
		t.Errorf("%+v", first)
	}
	if second.Queue != "a" || second.Type != "other" || second.IDs != nil || second.Ahead != 0 || !second.First.IsZero() {
		t.Errorf("%+v", second)
	}
	if none, err := r.read([]any{[]any{int64(0)}}); err != nil || none.more || none.parked != nil {
		t.Errorf("none: %+v, %v", none, err)
	}
	for name, group := range map[string][]any{
		"short": group[:5], "no queue": {int64(0), "type", key, "held", "", int64(0)}, "no number": {int64(1), "type", key, "held", "", "x"},
	} {
		if _, err := r.read([]any{[]any{int64(0), group}}); !errors.Is(err, errReply) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestQueuesThatNobodyServesAreNamed(t *testing.T) {
	t.Parallel()
	unserved := func(queues ...string) *Parking { return &Parking{Unserved: func() []string { return queues }} }
	for want, p := range map[string]*Parking{"|a|": unserved("a"), "|a|b|": unserved("a", "b")} {
		if got := p.unserved(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, p := range []*Parking{nil, {}, unserved()} {
		if got := p.unserved(); got != "" {
			t.Errorf("%q, want none", got)
		}
	}
}
