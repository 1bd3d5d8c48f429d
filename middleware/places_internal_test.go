package middleware

import (
	"testing"
	"time"
)

func TestThoseFarBackInLineLookForThemselvesLater(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		delay time.Duration
		ahead int
		want  time.Duration
	}{
		{31 * time.Second, 0, 31 * time.Second},
		{31 * time.Second, -1, 31 * time.Second},
		{32 * time.Second, 8, 64 * time.Second},
		{32 * time.Second, 16, 96 * time.Second},
		{32 * time.Second, 10_000, 10 * time.Minute},
		{time.Hour, 10_000, time.Hour},
		{10 * time.Minute, 3, 10 * time.Minute},
		{9 * time.Minute, 8, 10 * time.Minute},
		{time.Second, 1 << 62, 10 * time.Minute},
	} {
		if got := fallback(tt.delay, tt.ahead); got != tt.want {
			t.Errorf("a delay of %v with %d tasks before it becomes %v, want %v", tt.delay, tt.ahead, got, tt.want)
		}
	}
}
