package pipeline

import (
	"fmt"
	"time"
)

// Pauses before a server that did not answer is asked again.
const (
	firstPause = 25 * time.Millisecond
	maxPause   = time.Second
)

// An answer may take usualTimes as long as the recent ones, but at most maxTimes the patience.
const (
	usualTimes = 2
	maxTimes   = 10
	looks      = 5 // within the patience
)

// health knows whether a server answers. It does no I/O; the caller holds the mutex.
type health struct {
	since    time.Time     // when the pipeline under way was sent; zero when there is none
	looked   time.Time     // when it was looked at last
	silent   time.Duration // how long it has been unanswered, less the times when this process did not run
	told     bool          // its callers know that it is overdue
	usual    time.Duration // the longest time of a recent answer; it decays
	failures int           // in a row
	last     error         // of the last failure
	until    time.Time     // no call before this time
}

// sent records that a pipeline is under way.
func (h *health) sent(now time.Time) { h.since, h.looked, h.silent, h.told = now, now, 0, false }

// answered records the answer of a pipeline, or why there was none.
func (h *health) answered(now time.Time, err error) {
	took := now.Sub(h.since)
	h.since, h.told = time.Time{}, false
	if err == nil {
		h.usual = max(took, h.usual-h.usual/16)
		h.failures, h.last = 0, nil
		return
	}
	h.until = now.Add(min(firstPause<<min(h.failures, 10), maxPause))
	h.failures++
	h.last = err
}

// look returns when to look at the pipeline under way again, or 0 for never. Once the pipeline is overdue, look returns
// an error, once. A server does not hang just because this process is too busy to look in time, or because its answers
// usually take long. So the time between two looks counts as one interval at most, and answers may take somewhat longer
// than recent ones.
func (h *health) look(now time.Time, patience time.Duration) (next time.Duration, err error) {
	if h.since.IsZero() || h.told {
		return 0, nil
	}
	interval := patience / looks
	h.silent += min(now.Sub(h.looked), interval)
	h.looked = now
	most := maxTimes * patience
	if h.silent < min(max(patience, usualTimes*h.usual), most) && now.Sub(h.since) < most {
		return interval, nil
	}
	h.told = true
	return 0, h.silence(now)
}

// silence returns the error of a server that does not answer.
func (h *health) silence(now time.Time) error {
	return fmt.Errorf("no answer for %v, not asked again yet", now.Sub(h.since).Round(time.Millisecond))
}

// refuse returns why no call should be sent now: because a pipeline is overdue, or has just failed. After the pause one
// call is sent, and others are refused until it is answered.
func (h *health) refuse(now time.Time) error {
	switch {
	case h.told:
		return h.silence(now)
	case h.failures > 0 && now.Before(h.until):
		return fmt.Errorf("not asked again within %v of the last failure: %w",
			h.until.Sub(now).Round(time.Millisecond), h.last)
	case h.failures > 0 && !h.since.IsZero():
		return fmt.Errorf("it is being tried again; the last failure: %w", h.last)
	}
	return nil
}
