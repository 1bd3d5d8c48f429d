package locking

import (
	"errors"
	"fmt"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// errNodeTimeout is the failure of a node that has not answered within NodeTimeout, and errOverload that of a node that
// was not asked in time.
var (
	errNodeTimeout = errors.New("no answer in time")
	errOverload    = errors.New("too many calls are before this one")
)

// errTaking is the failure of a node that has not renewed a lock while an acquire call was under way. It proves no
// loss, because that call may have raised the counter above the one in the renewal.
var errTaking = errors.New("the lock is being taken there")

// failure returns the errors of the nodes. The caller holds the mutex.
func (g *redlockGrant) failure() error {
	failures := make([]error, len(g.nodes))
	for i, n := range g.nodes {
		failures[i] = n.failure
	}
	return g.redlock.failure(failures)
}

// failure joins the errors of the nodes, some of which may be nil.
func (r *Redlock) failure(failures []error) error {
	var errs []error
	again := false
	for i, err := range failures {
		if err == nil {
			continue
		}
		errs = append(errs, nodeError(i, r.nodes[i].addr, err))
		again = again || !permanent(err)
	}
	switch {
	case len(errs) == 0:
		return fmt.Errorf("%w: %w", ErrUnavailable, errNodeTimeout)
	case again:
		return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
	default:
		return errors.Join(errs...)
	}
}

// nodeError adds the node to its error, unless the error is a refusal of the guard, which names the node itself.
func nodeError(i int, addr string, err error) error {
	refusal, ok := errors.AsType[*restartguard.RefusedError](err)
	switch {
	case !ok:
		return fmt.Errorf("node %d (%s): %w", i, addr, rediswire.WithRules(foreign(err)))
	case refusal.Reason == restartguard.Unreachable:
		return refusal
	default:
		return quarantine{refusal}
	}
}

// quarantine is the refusal of a node that can be reached. It matches [ErrQuarantined].
type quarantine struct{ *restartguard.RefusedError }

func (q quarantine) Is(target error) bool {
	return target == ErrQuarantined || q.RefusedError.Is(target)
}
