package locking

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// outcome is what is known about a call to a server.
type outcome int

const (
	answered outcome = iota // the server has executed it, or refused it with an error
	unsent                  // the server has not executed it, and never will
	unknown                 // the server may have executed it, or may still do so
)

// outcomeOf returns the outcome of a call that ended with err. Clients send each call once, so no copy of it can be
// executed later.
func outcomeOf(err error) outcome {
	if err == nil || errors.Is(err, errReply) {
		return answered
	}
	// The error of a login can be a reply, too, and so can the cause of a refusal by the guard.
	if errors.Is(err, pipeline.ErrNotSent) || errors.Is(err, restartguard.ErrRefused) || rediswire.IsRefusal(err) ||
		rediswire.IsForeign(err) {
		return unsent
	}
	if _, reply := errors.AsType[redis.Error](err); reply {
		return answered
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) {
		return unsent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unsent
	}
	return unknown
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

// errNotHeld is the failure of a node that does not renew a lock because another owner has it there, or has had it, or
// because the node has forgotten it.
var errNotHeld = errors.New("it does not have this lock, or no longer")
