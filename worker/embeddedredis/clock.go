package embeddedredis

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clock lets keys expire by real time: each command of a client is preceded by a look at all keys. miniredis can do so by
// itself (ClockTTL), but then looks again before each call that a script makes, which takes most of the time of a busy server.
type clock struct {
	redis   *miniredis.Miniredis
	clients sync.Map // of *server.Peer

	mu   sync.Mutex
	last time.Time // until when time has been taken off the keys
}

func newClock(m *miniredis.Miniredis) *clock { return &clock{redis: m, last: time.Now()} }

// tick is called before each command, and leaves it to miniredis. A key that the command sets lives for its whole TTL, because
// the time before has been taken off already.
func (c *clock) tick(peer *server.Peer, _ string, _ ...string) (handled bool) {
	if peer.Ctx == nil { // a client's first command; the peer of a script has the context of its client
		c.clients.Store(peer, nil)
		peer.OnDisconnect(func() { c.clients.Delete(peer) })
	}
	if _, ok := c.clients.Load(peer); !ok {
		return false // time stands still in a script, and the keys are locked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.redis.FastForward(now.Sub(c.last))
	c.last = now
	return false
}
