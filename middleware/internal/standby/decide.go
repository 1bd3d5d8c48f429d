package standby

import "time"

// LongHold is the average hold beyond which a key has no standby: the time that it takes to wake a task does not matter
// then.
const LongHold = 250 * time.Millisecond

// Limit returns how many tasks of a server should be on standby for a key, at most so many: enough that one is there
// when the key is released, although a woken task takes pickup to arrive. hold and pickup are averages, zero while
// unknown.
func Limit(hold, pickup time.Duration, most int) int {
	switch {
	case hold > LongHold || most <= 0:
		return 0
	case hold <= 0:
		return 1
	}
	return int(min(max((pickup+hold-1)/hold, 1), time.Duration(most)))
}

// wakes returns how many waiters a release wakes: one for each standby place of limit that is neither taken (waiting)
// nor reserved, and one that takes the key itself unless it was handed off in this process. When no task waits here for
// a key that was not handed off, one is woken in any case, because a task with a reservation may never arrive.
func wakes(limit, waiting, reserved int, handedOff bool) int {
	if handedOff {
		waiting-- // it has the key now
	} else {
		limit++
	}
	n := limit - max(waiting, 0) - reserved
	if !handedOff && waiting <= 0 {
		n = max(n, 1)
	}
	return max(n, 0)
}

// Average returns a moving average after one more sample. Zero means that there was no sample yet, and a sample of zero
// or less is none.
func Average(mean, sample time.Duration) time.Duration {
	switch {
	case sample <= 0:
		return mean
	case mean == 0:
		return sample
	default:
		return mean + (sample-mean)/8
	}
}
