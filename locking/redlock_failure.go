package locking

import (
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// errNodeTimeout is the failure of a node that has not answered within NodeTimeout, and errOverload that of a node that
// was not asked in time.
var (
	errNodeTimeout = errors.New("no answer in time")
	errOverload    = errors.New("too many calls are before this one")
)

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

// permanent reports whether another attempt would fail in the same way.
func permanent(err error) bool {
	if errors.Is(err, restartguard.ErrRefused) { // it is checked again
		return false
	}
	reply, ok := errors.AsType[redis.Error](err)
	return ok && !rediswire.IsTransient(reply.Error()) || isClosed(err) ||
		errors.Is(err, errReply) || errors.Is(err, errTokens) || errors.Is(err, errNotHeld)
}

// isClosed reports whether err says that the client was closed.
func isClosed(err error) bool {
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, net.ErrClosed)
}
