package holdings

import (
	"context"
	"time"
)

const (
	// mostWanted is the maximum number of keys in one report.
	mostWanted = 100
	// mostParked is how many tasks are read once a minute, for keys to which nothing happens.
	mostParked = 1000
)

// Parked counts the tasks that wait.
type Parked interface {
	// Count returns how many tasks wait.
	Count(ctx context.Context) (int, error)
	// Waiting returns for each key how many tasks wait for it, and the longest wait.
	Waiting(ctx context.Context, keys []string) (map[string]Point, error)
	// Awaited returns the keys of the n tasks that were parked first, those of most tasks first.
	Awaited(ctx context.Context, n int) ([]string, error)
}

// remember adds to the history what has happened since the last time. The first worker that reports in a minute also adds the
// keys of tasks that were parked long ago, to which nothing may have happened. While nothing happens, a worker sends two commands
// a minute. What cannot be written is left out.
func (r *Reporter) remember(ctx context.Context) {
	if r.opts.Parked == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	now, t := time.Now(), r.held.take()
	minute := now.Truncate(time.Minute)
	if t.all == (Point{}) && minute.Equal(r.minute) {
		return
	}
	waiting, err := r.opts.Parked.Count(ctx)
	if err != nil {
		return
	}
	t.all.Waiting = waiting
	begun, err := r.tell(ctx, now, t, t.wanted(mostWanted))
	if err != nil {
		return
	}
	r.minute = minute
	if !begun || waiting == 0 {
		return
	}
	if keys, err := r.opts.Parked.Awaited(ctx, mostParked); err == nil {
		rest := tally{left: waiting > mostParked || len(keys) > mostWanted}
		_, _ = r.tell(ctx, now, rest, keys[:min(len(keys), mostWanted)])
	}
}

// tell adds what was counted to the history, and how many tasks wait for some keys.
func (r *Reporter) tell(ctx context.Context, now time.Time, t tally, wanted []string) (begun bool, err error) {
	keys := map[string]Point{}
	if len(wanted) > 0 {
		if keys, err = r.opts.Parked.Waiting(ctx, wanted); err != nil {
			return false, err
		}
	}
	for key, p := range keys {
		t.all.Oldest = max(t.all.Oldest, p.Oldest)
		if c := t.keys[key]; c != nil {
			p.Holds, p.Wakes, p.Refusals = c.Holds, c.Wakes, c.Refusals
			keys[key] = p
		}
	}
	return Remember(ctx, r.client, now, t.all, keys, t.left || len(t.keys) > len(wanted))
}
