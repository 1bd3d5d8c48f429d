package line_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/line"
)

func TestADelayIsNeverCutShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d"))
		got := line.WholeSeconds(now, d)
		if kept := time.Unix(now.Add(got).Unix(), 0); kept.Before(now.Add(d)) || got-d >= time.Second {
			t.Fatalf("%v from %v becomes %v: asynq keeps %v", d, now, got, kept)
		}
	})
}
