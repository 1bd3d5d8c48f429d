package middleware

import (
	"testing"
	"time"
)

func TestCollectingLeavesAHandlerItsTime(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tt := range map[string]struct {
		keys             int
		hold, left, want time.Duration
	}{
		"nothing known":              {8, 0, 30 * time.Minute, 3 * s},
		"brief holds":                {8, 50 * time.Millisecond, 30 * time.Minute, 3 * s},
		"holds of a second":          {8, s, 30 * time.Minute, 16 * s},
		"long holds":                 {8, 20 * s, 30 * time.Minute, time.Minute},
		"a short timeout":            {8, 50 * time.Millisecond, 4 * s, s},
		"a timeout as long as holds": {8, 2900 * time.Millisecond, 3 * s, -2800 * time.Millisecond},
	} {
		if got := collectTime(tt.keys, tt.hold, tt.left); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
