package embeddedredis

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// clock lets keys expire in real time: all keys are checked before each command of a client. miniredis can do this by
// itself (ClockTTL), but then also checks before each call of a script, which takes most of the time of a busy server.
type clock struct {
	redis   *miniredis.Miniredis
	clients sync.Map // of *server.Peer

	mu   sync.Mutex
	last time.Time // up to which the TTLs have been reduced
}

func newClock(m *miniredis.Miniredis) *clock { return &clock{redis: m, last: time.Now()} }

// tick runs before each command, and leaves the command to miniredis. A key that the command sets has its whole TTL,
// because the time before the command has already been deducted.
func (c *clock) tick(peer *server.Peer, _ string, _ ...string) (handled bool) {
	if peer.Ctx == nil { // a client's first command; a script's peer has the context of its client
		c.clients.Store(peer, nil)
		peer.OnDisconnect(func() { c.clients.Delete(peer) })
	}
	if _, ok := c.clients.Load(peer); !ok {
		return false // a script: its time stands still, and the keys are locked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.redis.FastForward(now.Sub(c.last))
	c.last = now
	return false
}
