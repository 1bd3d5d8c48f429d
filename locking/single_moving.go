package locking

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// A move can take longer than a TTL, so meanwhile a holder renews and releases only its locks, one by one: a command of
// one key is always served.

// renewMoving extends the locks of a part whose slot is moving.
func (s *Single) renewMoving(ctx context.Context, p part, owner string, ttl time.Duration) (lost int, err error) {
	return s.eachLock(ctx, p, renewScript, parseRenew, owner, ms(ttl))
}

// releaseMoving releases the locks of a part whose slot is moving. Without the counter, any token tells a loss.
func (s *Single) releaseMoving(ctx context.Context, p part, owner string) (releaseReply, error) {
	parse := func(reply any, keys int) (int, error) {
		r, err := parseRelease(reply, keys)
		return r.lost, err
	}
	lost, err := s.eachLock(ctx, p, releaseScript, parse, owner, 0)
	return releaseReply{lost: lost, notify: true}, err
}

// eachLock calls a script for each lock of a part, and returns the position of the first lost key, or 0.
func (s *Single) eachLock(
	ctx context.Context, p part, script *pipeline.Script, parse func(reply any, keys int) (lost int, err error), args ...any,
) (lost int, err error) {
	for i := range p.keys {
		reply, err := s.server.Run(ctx, pipeline.NewCall(nil, script, p.redisKeys[3*i:3*i+1], args...))
		if err != nil {
			return 0, err
		}
		isLost, err := parse(reply, 1)
		if err != nil {
			return 0, err
		}
		if isLost == 1 && lost == 0 {
			lost = i + 1
		}
	}
	return lost, nil
}
