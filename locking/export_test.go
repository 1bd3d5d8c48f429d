package locking

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// WithBlock returns the options of an attempt that reserves n consecutive tokens, as a Gate asks for.
func (o Options) WithBlock(n int) Options {
	o.block = n
	return o
}

// Waiting returns how many callers wait for a key.
func (g *Gate) Waiting(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[key]; e != nil {
		return len(e.queue)
	}
	return 0
}

// AwaitReleases waits until the nodes have answered all releases, for d at most.
func (r *Redlock) AwaitReleases(d time.Duration) { r.open.wait(d) }

// AddHook adds a hook to the client of the first node.
func (r *Redlock) AddHook(hook redis.Hook) { r.nodes[0].client.AddHook(hook) }
