//go:build !linux

package server

import (
	"context"
	"time"
)

// NewAlarm returns a function that waits until a time, or until a context ends, and its end.
func NewAlarm() (until func(context.Context, time.Time) error, end func()) {
	return func(ctx context.Context, due time.Time) error {
		waiting, cancel := context.WithDeadline(ctx, due)
		defer cancel()
		<-waiting.Done()
		return context.Cause(ctx)
	}, func() {}
}
