package standby

import "time"

// LongHold is the average hold above which a key has no standby: the time that it takes to wake a task is then
// negligible.
const LongHold = 250 * time.Millisecond

// Limit returns how many tasks of a server should be on standby for a key, but at most most: enough for one to be there
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

// wakes returns how many waiters a release wakes: one for each of limit standby places that is neither taken (waiting)
// nor reserved, and one that takes the key itself unless it was handed off in this process. If no task waits here and
// the key was not handed off, at least one is woken, because a task with a reservation may never arrive.
func wakes(limit, waiting, reserved int, handedOff bool) int {
	if handedOff {
		waiting-- // one of them has the key now
	} else {
		limit++
	}
	n := limit - max(waiting, 0) - reserved
	if !handedOff && waiting <= 0 {
		n = max(n, 1)
	}
	return max(n, 0)
}

// Average returns a moving average after one more sample. A mean of zero means that there was no sample yet. Samples of
// zero or less are ignored.
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
