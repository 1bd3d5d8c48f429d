package locking

import (
	"context"
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/internal/lockhook"
)

func init() {
	lockhook.RedisKeys = func(key string, name func(string) string) (lockhook.Keys, error) {
		if name == nil {
			name = lockKey
		}
		all, err := redisKeysOf([]string{key}, name)
		if err != nil {
			return lockhook.Keys{}, err
		}
		return lockhook.Keys{Lock: all[0], Fence: all[1], Notify: all[2]}, nil
	}
	lockhook.Parse = func(value string) lockhook.Owner {
		o := parseOwner(value)
		if o.since.IsZero() {
			return lockhook.Owner{Block: o.block}
		}
		return lockhook.Owner{Ours: true, Label: o.label, Since: o.since, Block: o.block, Mark: value[:markSize]}
	}
	lockhook.TakeOver = func(ctx context.Context, locker any, r lockhook.Request) (any, error) {
		lease, err := takeOver(ctx, locker, r)
		if err != nil {
			return nil, err
		}
		return lease, nil
	}
	lockhook.Backend = backendOf
	lockhook.Leave = func(lease any) { lease.(*Lease).leave() } //nolint:errcheck,forcetypeassert // TakeOver returned it
	lockhook.EndWhenDeposed, lockhook.Name = followDepositions, ownerName
	lockhook.Record, lockhook.MarkOf = recordKey, markOf
}

// backendOf returns the name of a locker's backend: redis, redlock, or that of the package that implements it.
func backendOf(locker any) string {
	if l, ok := locker.(interface{ backendName() string }); ok {
		return l.backendName()
	}
	name, _, _ := strings.Cut(strings.TrimLeft(fmt.Sprintf("%T", locker), "*"), ".")
	return name
}

func (g *Gate) backendName() string           { return backendOf(g.inner) }
func (f *followedLocker) backendName() string { return backendOf(f.inner) }
func (l *backendLocker) backendName() string  { return backendOf(l.backend) }
func (*Single) backendName() string           { return "redis" }
func (*Redlock) backendName() string          { return "redlock" }
