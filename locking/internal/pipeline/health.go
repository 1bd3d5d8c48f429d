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

// A server is waited for up to usualTimes as long as an answer may take, as the last ones show, and maxTimes as long as
// the node's patience.
const (
	usualTimes = 2
	maxTimes   = 10
	looks      = 5 // within its patience
)

// health is what is known of whether a server answers. It decides only; the caller holds the mutex.
type health struct {
	since    time.Time     // when the pipeline without an answer went out; zero when there is none
	looked   time.Time     // when it was looked at last
	silent   time.Duration // for how long, as far as this process was there to hear
	told     bool          // its callers know that it is overdue
	usual    time.Duration // the longest time of late that an answer has taken; it fades
	failures int           // in a row
	last     error         // of the last failure
	until    time.Time     // no call before this time
}

// sent records that a pipeline is under way.
func (h *health) sent(now time.Time) { h.since, h.looked, h.silent, h.told = now, now, 0, false }

// answered records the answer of a pipeline, or that there was none.
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

// look returns when the pipeline under way is to be looked at again, 0 for never, or, once for each, that it is
// unanswered for longer than patience. Neither a process so busy that its looks come late nor a server whose answers
// usually take long is a server that hangs: the time between two looks counts as one interval at most, and answers may
// take a while longer than the last ones.
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

// silence is the error of a server without an answer.
func (h *health) silence(now time.Time) error {
	return fmt.Errorf("no answer for %v, not asked again yet", now.Sub(h.since).Round(time.Millisecond))
}

// refuse returns why no call should be sent now: a pipeline is overdue, or one has failed just before. After the pause
// the next call tries, and others wait for its outcome.
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
