package line

import "time"

// WholeSeconds returns the delay, at least d, that ends on a whole second. asynq keeps the times of its delayed tasks
// in whole seconds and rounds them down, so that a task may run up to a second before its time. asynq adds the delay to
// a moment that is a little later than now, so what it keeps is never before the end of d.
func WholeSeconds(now time.Time, d time.Duration) time.Duration {
	at := now.Add(d)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second)
	}
	return at.Sub(now)
}
