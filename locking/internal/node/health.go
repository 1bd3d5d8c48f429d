package node

import (
	"fmt"
	"time"
)

// Pauses after a server that did not answer is asked again.
const (
	firstPause = 25 * time.Millisecond
	maxPause   = time.Second
)

// health is what a node knows of whether its server answers. It decides only; the caller holds the mutex.
type health struct {
	since    time.Time // when the oldest pipeline without an answer went out; zero when there is none
	failures int       // in a row
	last     error     // of the last failure
	until    time.Time // no call before this time
}

// sent notes that a pipeline is on its way.
func (h *health) sent(now time.Time) {
	if h.since.IsZero() {
		h.since = now
	}
}

// answered notes the answer of a pipeline, or that there was none.
func (h *health) answered(now time.Time, err error) {
	h.since = time.Time{}
	if err == nil {
		h.failures, h.last = 0, nil
		return
	}
	h.until = now.Add(min(firstPause<<min(h.failures, 10), maxPause))
	h.failures++
	h.last = err
}

// refuse returns why no call should be sent now: while a pipeline has had no answer for longer than patience, and for a pause after one that failed.
// When the pause is over, the next call tries, and others wait for what becomes of it.
func (h *health) refuse(now time.Time, patience time.Duration) error {
	switch {
	case !h.since.IsZero() && now.Sub(h.since) > patience:
		return fmt.Errorf("no answer for %v, not asked again yet", now.Sub(h.since).Round(time.Millisecond))
	case h.failures > 0 && now.Before(h.until):
		return fmt.Errorf("not asked again within %v of the last failure: %w", h.until.Sub(now).Round(time.Millisecond), h.last)
	case h.failures > 0 && !h.since.IsZero():
		return fmt.Errorf("it is being tried again; the last failure: %w", h.last)
	}
	return nil
}
