package main

import (
	"testing"
	"time"
)

func TestBalanceCountsKeyByKey(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{TaskID: "a", Changes: map[string]int64{"order:1": 1, "seller:1": 5}},
		{TaskID: "b", Changes: map[string]int64{"order:1": 1}},
	}
	for name, test := range map[string]struct {
		counters map[string]int64
		want     balance
	}{
		"all there":                  {map[string]int64{"order:1": 2, "seller:1": 5}, balance{}},
		"one lost":                   {map[string]int64{"order:1": 1, "seller:1": 5}, balance{Lost: 1}},
		"counter missing":            {map[string]int64{"order:1": 2}, balance{Lost: 5}},
		"one doubled":                {map[string]int64{"order:1": 2, "seller:1": 10}, balance{Doubled: 5}},
		"one hides not the other":    {map[string]int64{"order:1": 3, "seller:1": 4}, balance{Lost: 1, Doubled: 1}},
		"a counter without a change": {map[string]int64{"order:1": 2, "seller:1": 5, "seller:2": 3}, balance{Doubled: 3}},
	} {
		if got := balanceOf(entries, test.counters); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestBalanceFindsOverlapsInTheLedger(t *testing.T) {
	t.Parallel()
	at := func(key string, began, ended int) entry {
		return entry{
			Began: time.UnixMilli(int64(began)), Ended: time.UnixMilli(int64(ended)), Changes: map[string]int64{key: 0},
		}
	}
	for name, test := range map[string]struct {
		entries []entry
		want    int
	}{
		"one after another": {[]entry{at("k", 10, 20), at("k", 20, 30), at("k", 0, 10)}, 0},
		"different keys":    {[]entry{at("k", 0, 20), at("l", 10, 30)}, 0},
		"two at a time":     {[]entry{at("k", 10, 30), at("k", 0, 20)}, 1},
		"two inside one":    {[]entry{at("k", 0, 90), at("k", 10, 20), at("k", 30, 40)}, 2},
	} {
		if got := balanceOf(test.entries, nil).Overlaps; got != test.want {
			t.Errorf("%s: %d overlaps, want %d", name, got, test.want)
		}
	}
}
