package locking

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/locking/backend"
)

// forgiveFor is how long forgive waits for an answer.
const forgiveFor = 5 * time.Second

// forgive lets the success of a holder count although its lease has expired, as [Lease.MarkCommitted] does, if no other
// owner has had the keys until now: then exclusion has held for all of the work. The store has mostly stood still, so
// the question is repeated for up to 5 s, also when ctx ends, but not once stopping is closed.
func (l *Lease) forgive(ctx context.Context, stopping <-chan struct{}) {
	loss, ok := errors.AsType[*LostError](l.Err())
	if !ok || loss.Reason != LossExpired || l.Committed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgiveFor)
	defer cancel()
	pauses := growing(20*time.Millisecond, 500*time.Millisecond, 1.5, 0.5)
	for {
		ours, err := l.untouched(ctx)
		if ours {
			l.MarkCommitted()
		}
		if err == nil {
			return
		}
		select {
		case <-stopping:
			return
		default:
		}
		if !sleep(ctx, pauses.NextBackOff(), stopping) {
			return
		}
	}
}

// untouched reports whether no other owner has had a key of the lease since it was granted: see
// [backend.UntouchedGrant]. A grant that cannot tell says false.
func (l *Lease) untouched(ctx context.Context) (bool, error) {
	if g, ok := l.grant.(backend.UntouchedGrant); ok {
		return g.Untouched(ctx)
	}
	return false, nil
}
