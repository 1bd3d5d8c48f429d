package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrEnded reports that the process polled for has ended.
var ErrEnded = errors.New("the process has ended")

// Poll calls try until it succeeds, at first every millisecond, later every 20 ms. It gives up with the last error of try when
// ctx or the process ends.
func Poll(ctx context.Context, ended <-chan struct{}, try func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := try()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ended:
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrEnded, err)
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
