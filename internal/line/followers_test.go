package line_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// A task that is to follow the next holder needs no slot, but that one does.
func TestAFollowerComesWithTheTaskThatItFollows(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]struct{ woken, come string }{
		1: {"j1 k1", "j1"}, 2: {"j1 j2 k1 k2", "j1 j2 k1 k2"}, 3: {"j1 j2 k1 k2", "j1 j2 k1 k2"},
	} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			h := newFetcher(t, "j k", slots)
			for _, id := range []string{"j1", "j2", "j3", "k1", "k2", "k3"} {
				h.wait(id, id[:1], id[:1])
			}
			got := h.acknowledge(2, "")
			var woken, come []string
			for _, w := range got.Woken {
				for _, entry := range w.Entries {
					woken = append(woken, strings.TrimPrefix(entry, "7:default"))
				}
			}
			for next, ok := h.in.Take(); ok; next, ok = h.in.Take() {
				come = append(come, next.ID)
				if next.Taken != nil != strings.HasSuffix(next.ID, "1") || next.Refused != nil != strings.HasSuffix(next.ID, "2") {
					t.Errorf("%+v", next)
				}
			}
			slices.Sort(come)
			if strings.Join(woken, " ") != want.woken || slots > 1 && strings.Join(come, " ") != want.come || slots == 1 && len(come) > 1 {
				t.Errorf("%v are woken and %v come, want %+v", woken, come, want)
			}
		})
	}
}

// The successor of a lease that was handed off has the slot of its holder. The next task in line comes all the same, and no other
// task with it; but not before those of a queue that comes first, nor if its server does not keep tasks of its type in memory.
func TestAFollowerNeedsNoSlot(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pending, kind string
		comes         bool
	}{
		"others are pending in its queue":          {"default", "test", true},
		"others are pending in a queue behind":     {"last", "test", true},
		"others are pending in a queue before":     {"first", "test", false},
		"its server keeps no such tasks in memory": {"last", "limited", false},
		"its server knows nothing of such tasks":   {"last", "unknown", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFetcher(t, "k", 1)
			enqueue := func(id, queue string) {
				_, err := asynq.NewClientFromRedisClient(h.Client).Enqueue(asynq.NewTask("plain", nil), asynq.TaskID(id), asynq.Queue(queue))
				h.OK(err)
			}
			enqueue("running", "first")
			_, err := h.in.Fetch(t.Context(), "default")
			h.OK(err)
			if next, _ := h.in.Take(); next.ID != "running" {
				t.Fatalf("%+v comes", next)
			}
			h.waitAs(tt.kind, "default", "a", "k", "k")
			enqueue("pending", tt.pending)
			h.kept = true
			if got := h.acknowledge(1, ""); len(got.Woken) == 1 != tt.comes {
				t.Errorf("the acknowledgement tells %+v", got)
			}
			next, comes := h.in.Take()
			if comes != tt.comes || comes && (next.ID != "a" || next.Refused == nil) {
				t.Errorf("%+v comes: %t", next, comes)
			}
			if next, ok := h.in.Take(); ok {
				t.Errorf("%+v comes, too", next)
			}
		})
	}
}

// The next holder is a task of another server. One of this server must not take the key in its place.
func TestNoTaskFollowsOneOfAnotherServer(t *testing.T) {
	t.Parallel()
	h := newFetcher(t, "k", 2)
	h.waitAs("test", "elsewhere", "a", "k", "k")
	h.wait("b", "k", "k")
	got := h.acknowledge(2, "")
	if len(got.Woken) != 1 || !slices.Equal(got.Woken[0].Entries, []string{"9:elsewherea"}) {
		t.Errorf("the acknowledgement tells %+v, want one task", got)
	}
	if next, ok := h.in.Take(); ok {
		t.Errorf("%+v comes", next)
	}
}

// The queue of the second waiter comes first, so the fetch gives it the key. Then it needs a slot, as every holder does.
func TestAFollowerThatGetsTheKeyNeedsASlot(t *testing.T) {
	t.Parallel()
	h := newFetcher(t, "k", 1)
	h.waitAs("test", "last", "a", "k", "k")
	h.wait("b", "k", "k")
	if got := h.acknowledge(2, ""); len(got.Woken) != 1 || len(got.Woken[0].Entries) != 2 {
		t.Errorf("the acknowledgement tells %+v, want two tasks", got)
	}
	if next, _ := h.in.Take(); next.ID != "b" || next.Taken == nil {
		t.Errorf("%+v comes, want the second one with its lock", next)
	}
	if next, ok := h.in.Take(); ok {
		t.Errorf("%+v comes, too", next)
	}
}
