package locking

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/guard"
	"github.com/railtoken/railtoken/locking/internal/node"
)

// outcome is what is known of a call that was made to a server.
type outcome int

const (
	answered outcome = iota // the server has done it, or has refused to
	unsent                  // the server never sees it
	unknown                 // the server may have done it, or may yet do it
)

// outcomeOf returns what is known of a call by its error. It holds because clients send the calls of package node once.
func outcomeOf(err error) outcome {
	if err == nil || errors.Is(err, errReply) {
		return answered
	}
	if errors.Is(err, node.ErrNotSent) {
		return unsent
	}
	if _, reply := errors.AsType[redis.Error](err); reply {
		return answered
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, guard.ErrRefused) {
		return unsent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unsent
	}
	return unknown
}
