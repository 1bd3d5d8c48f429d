package locking

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// isMoving reports whether a server of a Redis Cluster has refused a script because the slot of its keys is moving to
// another server. A move can take longer than a TTL, so meanwhile a holder renews and releases only its locks, one by
// one: a command of one key is always served. HasErrorPrefix allocates for nil, too.
func isMoving(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

// isUnserved reports whether the servers of a Redis Cluster have sent a client to each other as often as it goes, so
// that none has run the script. For a moment at the end of a move, the server that had the slot may already have given
// it up while the other one has not taken it over.
func isUnserved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// renewMoving extends the locks of a part whose slot is moving.
func (g *singleGrant) renewMoving(ctx context.Context, p part, ttl time.Duration) (lost int, err error) {
	return g.eachLock(ctx, p, renewScript, parseRenew, g.owner, ms(ttl))
}

// releaseMoving releases the locks of a part whose slot is moving. Without the counter, any token tells a loss.
func (g *singleGrant) releaseMoving(ctx context.Context, p part) (releaseReply, error) {
	parse := func(reply any, keys int) (int, error) {
		r, err := parseRelease(reply, keys)
		return r.lost, err
	}
	lost, err := g.eachLock(ctx, p, releaseScript, parse, g.owner, 0)
	return releaseReply{lost: lost, notify: true}, err
}

// eachLock calls a script for each lock of a part, and returns the position of the first lost key, or 0.
func (g *singleGrant) eachLock(
	ctx context.Context, p part, script *pipeline.Script, parse func(reply any, keys int) (lost int, err error), args ...any,
) (lost int, err error) {
	for i := range p.keys {
		reply, err := g.single.server.Run(ctx, pipeline.NewCall(nil, script, p.redisKeys[3*i:3*i+1], args...))
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
