package middleware

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

func TestTheReasonOfAConflictComesBackWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(72*time.Hour/time.Millisecond)).Draw(t, name)) * time.Millisecond
		}
		want := &ConflictError{
			Task: delayqueue.Task{Queue: rapid.String().Draw(t, "queue"), ID: rapid.String().Draw(t, "id")}, Type: rapid.String().Draw(t, "type"),
			Key: string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")), Held: duration("held"), Outcome: Archive,
			Limit:     delayqueue.Limit(rapid.SampledFrom([]string{"", "conflicts", "age", "waiters", "one of a later version"}).Draw(t, "limit")),
			Conflicts: rapid.IntRange(1, 1<<40).Draw(t, "conflicts"), Waited: duration("waited"), RetryAfter: duration("after"),
			Holder: locking.Holder{Label: rapid.String().Draw(t, "label"), Fence: rapid.Int64Range(0, 1<<53).Draw(t, "fence")},
		}
		want.Holder.Remaining = want.RetryAfter
		if rapid.Bool().Draw(t, "since") {
			want.Holder.Since = time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "since ms")).UTC()
		}
		got, err := ParseConflict(want.result())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %v\nwant %+v", got, err, want)
		}
	})
}

func TestAReasonOfAnEarlierVersionIsRead(t *testing.T) {
	t.Parallel()
	got, err := ParseConflict([]byte(`{"queue":"default","id":"a","type":"test","key":"order:1","outcome":"archived","limit":"age","conflicts":7,` +
		`"waited_ms":1500,"retry_after_ms":2000,"holder":"h","held_since":"2026-01-02T03:04:05.678Z","holder_fence":9,"of a later version":{}}`))
	want := &ConflictError{
		Task: delayqueue.Task{Queue: "default", ID: "a"}, Type: "test", Key: "order:1", Outcome: Archive, Limit: delayqueue.AgeLimit,
		Conflicts: 7, Waited: 1500 * time.Millisecond, RetryAfter: 2 * time.Second,
		Holder: locking.Holder{Label: "h", Since: time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC), Fence: 9, Remaining: 2 * time.Second},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func TestOtherResultsAreNoReason(t *testing.T) {
	t.Parallel()
	for _, result := range []string{
		"", "done", "null", "{}", "[]", `{"outcome":"archived"}`, `{"key":"k"}`, `{"key":"k","outcome":"parked"}`, `{"key":7,"outcome":"archived"}`,
		`{"key":"k","outcome":"archived","key_bytes":"no base64!"}`, strings.Repeat("[", 100_000),
	} {
		if got, err := ParseConflict([]byte(result)); err == nil {
			t.Errorf("%.40q is taken for %+v", result, got)
		}
	}
}
