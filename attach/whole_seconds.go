package attach

import (
	"math"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

// wholeSeconds rounds up options that asynq keeps in whole seconds.
func wholeSeconds(opts []asynq.Option) []asynq.Option {
	all := make([]asynq.Option, 0, len(opts))
	for _, opt := range opts {
		if opt != nil { // asynq ignores it
			all = append(all, wholeSecond(opt, time.Now()))
		}
	}
	return all
}

// wholeSecond rounds up an option that asynq keeps in whole seconds. Otherwise a timeout of half a second would become
// no timeout, and a delayed task would run too early.
func wholeSecond(opt asynq.Option, now time.Time) asynq.Option {
	if at, ok := opt.Value().(time.Time); ok && opt.Type() == asynq.ProcessAtOpt && at.After(now) {
		return asynq.ProcessAt(now.Add(line.WholeSeconds(now, at.Sub(now))))
	}
	d, ok := opt.Value().(time.Duration)
	if !ok || d <= 0 {
		return opt
	}
	switch opt.Type() {
	case asynq.ProcessInOpt:
		return asynq.ProcessIn(line.WholeSeconds(now, d))
	case asynq.TimeoutOpt:
		return asynq.Timeout(roundUp(d))
	case asynq.RetentionOpt:
		return asynq.Retention(roundUp(d))
	case asynq.UniqueOpt:
		return asynq.Unique(roundUp(d))
	default:
		return opt
	}
}

// roundUp returns d rounded up to whole seconds.
func roundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Second)
	if whole < d && whole <= math.MaxInt64-time.Second {
		whole += time.Second
	}
	return whole
}
