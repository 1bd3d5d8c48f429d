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

func TestAHolderIsExpectedToEnd(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, tt := range map[string]struct {
		limit, hold, held time.Duration
		want              bool
	}{
		"nothing known":               {3 * s, 0, 0, true},
		"held for long":               {3 * s, 0, 31 * s, false},
		"begun, of long holds":        {60 * s, 180 * s, 5 * s, false},
		"about to end, of long holds": {60 * s, 180 * s, 170 * s, true},
		"longer than most":            {40 * s, 10 * s, 30 * s, true},
		"much longer than most":       {40 * s, 10 * s, 50 * s, false},
	} {
		if got := endsWithin(tt.limit, tt.hold, tt.held); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
