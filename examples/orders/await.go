package main

import (
	"context"
	"time"
)

const (
	// awaitTick is how often to check for the end of a run when no event announces it.
	awaitTick = 200 * time.Millisecond
	// awaitPatience is how long Redis may be unreachable meanwhile.
	awaitPatience = 15 * time.Second
)

// await returns nil when total tasks have ended, or the cause when ctx ends first. nudge is closed when this process by itself
// has seen that many ends. Other processes may work on the tasks too.
func await(ctx context.Context, total int, nudge <-chan struct{}, p progress, ended func() (int, error)) error {
	ticker := time.NewTicker(awaitTick)
	defer ticker.Stop()
	for looked := time.Now(); ; {
		switch n, err := ended(); {
		case err == nil && n >= total:
			return nil
		case err == nil:
			looked = time.Now()
			p.show(min(n, total))
		case time.Since(looked) > awaitPatience:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-nudge:
			nudge = nil // once: it stays closed
		case <-ticker.C:
		}
	}
}
