package restartguard

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Look vets a server of which nothing is known, as a process does that connects for the first time. It returns the
// refusal, or nil if the server may vote. Whether the server is also another node is left to the caller.
func Look(ctx context.Context, client *redis.Client, maxTTL time.Duration) *RefusedError {
	cn := client.Conn()
	defer cn.Close()
	now := time.Now()
	f, err := ask(ctx, cn, Connect)
	if err != nil {
		reason := Unreachable
		if !isIO(err) {
			reason = Unreadable
		}
		refusal := refuse(reason, now.Add(recheck), "%v", err)
		refusal.Addr, refusal.Err = client.Options().Addr, err
		return refusal
	}
	_, refusal := Vet(f, Limits{MaxTTL: maxTTL, MaxSkew: maxTTL / 4}, Known{}, nil, now)
	if refusal != nil {
		refusal.Addr = client.Options().Addr
	}
	return refusal
}
