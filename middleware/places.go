package middleware

import "time"

const (
	// defaultStandby is the most tasks of a server that wait in their slots for one key with [Requeue].
	defaultStandby = 4
	// longHold is how long a key must be held on average that nobody waits for it in a slot.
	longHold = 250 * time.Millisecond
	// deckPatience is how long a task waits on deck before it parks after all.
	deckPatience = 500 * time.Millisecond
	// deckShare is the share of the time left to a task that it may wait on deck: one part in so many. asynq has begun to count the task's
	// timeout, which is meant for its handler.
	deckShare = 100
)

// standbyLimit returns how long a task may wait on deck since its first refusal.
func standbyLimit(c Conflict) time.Duration {
	if c.Deadline.IsZero() {
		return deckPatience
	}
	return min(deckPatience, c.Deadline.Sub(c.FirstAt)/deckShare)
}

// places returns how many tasks of a server should be on deck for a key (docs/design.md, 5.2), at most so many: enough that one is there when the
// key is given back, although a task that is woken takes pickup to arrive. hold is how long the key is held on average, and zero while
// nobody knows; so is pickup. Nobody is on deck for a key that is held for long: the time that it takes to wake a task does not matter then.
func places(hold, pickup time.Duration, most int) int {
	switch {
	case hold > longHold || most <= 0:
		return 0
	case hold <= 0:
		return 1
	}
	return int(min(max((pickup+hold-1)/hold, 1), time.Duration(most)))
}

// toWake returns how many waiters to wake when a key was given back: as many as there are places on deck that are not taken (waiting) or
// promised (coming), and one who takes the key itself if it was not handed on in this process. Such a key needs one in any case when nobody
// here waits for it: a promise may have been broken, and then nobody comes.
func toWake(places, waiting, coming int, handedOn bool) int {
	if handedOn {
		waiting-- // it has the key now
	} else {
		places++
	}
	n := places - max(waiting, 0) - coming
	if !handedOn && waiting <= 0 {
		n = max(n, 1)
	}
	return max(n, 0)
}
