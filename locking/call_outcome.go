package locking

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/restartguard"
)

// outcome is what is known about a call to a server.
type outcome int

const (
	answered outcome = iota // the server has executed or refused it
	unsent                  // the server will never receive it
	unknown                 // the server may have executed it, or may still do so
)

// outcomeOf returns the outcome of a call that ended with err. Clients send each call once, so no copy of it can be
// executed later.
func outcomeOf(err error) outcome {
	if err == nil || errors.Is(err, errReply) {
		return answered
	}
	if errors.Is(err, pipeline.ErrNotSent) {
		return unsent
	}
	if _, reply := errors.AsType[redis.Error](err); reply {
		return answered
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, restartguard.ErrRefused) {
		return unsent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unsent
	}
	return unknown
}
