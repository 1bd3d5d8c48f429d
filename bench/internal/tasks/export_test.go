package tasks

import (
	"context"
	"time"
)

// NewVirtualTally returns a tally whose tasks work in the virtual time of a test.
func NewVirtualTally(tasks []Task) *Tally {
	t := NewTally(tasks)
	t.alarm = func() (until func(context.Context, time.Time) error, end func()) {
		return func(ctx context.Context, due time.Time) error {
			waiting, cancel := context.WithDeadline(ctx, due)
			defer cancel()
			<-waiting.Done()
			return context.Cause(ctx)
		}, func() {}
	}
	return t
}
