package recovery

import (
	"slices"
	"testing"
	"time"
)

var origin = time.Unix(1000, 0)

// every returns times from one on, a period apart, before another one. Both are milliseconds since the origin.
func every(from, until, period int) (all []time.Time) {
	for ms := from; ms < until; ms += period {
		all = append(all, at(ms))
	}
	return all
}

func at(ms int) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }

func TestTheRateIsNormalOnceAWholeWindowIsFullEnough(t *testing.T) {
	t.Parallel()
	before := every(0, 1000, 10) // 100 a second, so 16 of 20 in a window are normal
	const fault, back = 1000, 1500
	for name, c := range map[string]struct {
		after         []time.Time
		first, normal int // 0 when the rate is not normal
	}{
		"at once":                  {every(1500, 2000, 10), 1500, 1500},
		"later":                    {every(1700, 2500, 10), 1700, 1700},
		"slow at first":            {slices.Concat(every(1600, 2000, 50), every(2000, 2500, 10)), 1600, 1950},
		"slow":                     {every(1600, 9000, 14), 0, 0},
		"just quick enough":        {every(1600, 9000, 12), 1600, 1600},
		"not seen for long enough": {every(1600, 1790, 10), 0, 0},
		"from memory, and no more": {every(1100, 1490, 10), 0, 0},
		"from memory, then later":  {slices.Concat(every(1100, 1490, 10), every(3000, 3500, 10)), 3000, 3000},
		"nothing":                  {nil, 0, 0},
	} {
		got, ok := judge(slices.Concat(before, c.after), normal, time.Second, at(fault), at(back))
		if ok != (c.normal > 0) {
			t.Errorf("%s: %v, %+v", name, ok, got)
		}
		if ok && (!got.first.Equal(at(c.first)) || !got.normal.Equal(at(c.normal))) {
			t.Errorf("%s: the first at %v, normal at %v", name, got.first.Sub(origin), got.normal.Sub(origin))
		}
	}
}

func TestOnlyTheTimeBeforeTheFaultTellsTheRate(t *testing.T) {
	t.Parallel()
	starts := slices.Concat(every(0, 500, 1), every(500, 1000, 10), every(1200, 2000, 10)) // it began much quicker
	if got, ok := judge(starts, normal, 500*time.Millisecond, at(1000), at(1000)); !ok || !got.normal.Equal(at(1200)) {
		t.Errorf("got %v, %+v", ok, got)
	}
	if got, ok := judge(starts, normal, time.Second, at(1000), at(1000)); ok {
		t.Errorf("of the whole time: %+v", got)
	}
}
