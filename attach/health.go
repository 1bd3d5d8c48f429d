package attach

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/health"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// Ready returns a handler that answers 200 while the servers can take tasks and lock their keys, and 503 otherwise,
// with the reasons as plain text:
//
//   - the servers have not been started, or are being shut down;
//   - the Redis of the tasks was refused by [Attached.Check], or has not answered for 15 s;
//   - no lock could be taken for 15 s; with several lock servers, no majority of them answers, or may vote;
//   - the fetch loop of a server has been stuck for 15 s.
//
// A server whose slots are all occupied is ready. An answer takes up to 2 s. It costs one lock and its release, at most
// once a second for all requests together; whatever was seen working within the last 15 s counts as working. The text
// contains server addresses, but neither secrets nor business keys.
func (a *Attached) Ready() http.Handler {
	return health.Handler("ready", func(ctx context.Context) error {
		var locks health.Evidence
		if !a.isStopping() { // else the Locker may be closed
			locks = a.health.locks.Look(ctx)
		}
		return a.health.limits.Ready(a.facts(locks))
	})
}

// Live returns a handler that answers 503 if only a restart of the process can help, because the fetch loop of a server
// has been stuck for a minute although Redis answers. It answers 200 otherwise. An outage of Redis or of the lock
// servers is no reason to restart, nor is a shutdown, however long it lasts.
func (a *Attached) Live() http.Handler {
	return health.Handler("live", func(ctx context.Context) error {
		dead := a.health.limits.Alive(a.facts(health.Evidence{}))
		if dead != nil && a.health.redis.Look(ctx).Err != nil {
			dead = nil // the loop may be waiting for Redis
		}
		return dead
	})
}

// vitals is what the handlers of [Attached.Ready] and [Attached.Live] know.
type vitals struct {
	limits health.Limits
	locks  health.Probe // takes a lock that no other caller wants
	redis  health.Probe // pings the Redis of the tasks

	started sync.Once
	began   time.Time // when a server began to fetch
}

// observe prepares the handlers.
func (a *Attached) observe() {
	a.health.limits = health.Defaults
	a.health.redis.Try = func(ctx context.Context) error { return a.client.Ping(ctx).Err() }
	key := []string{"railtoken:health:" + rand.Text()[:8]} // one for the process, so that it is free
	a.health.locks.Try = func(ctx context.Context) error {
		lease, err := a.locker.Acquire(ctx, key, locking.Options{TTL: locking.MinTTL, Label: "health check"})
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// started reports once that a server begins to fetch.
func (a *Attached) started(ctx context.Context) {
	a.health.started.Do(func() {
		a.health.began = time.Now()
		tell(ctx, a.opts.Observer, a.opts.Logger, &middleware.Event{Kind: "started", Reach: a.reach})
	})
}

// reach is the Reach of [middleware.Event].
func (a *Attached) reach(ctx context.Context) (tasks, locks time.Duration, ok bool) {
	if a.isStopping() { // the Locker may be closed
		return 0, 0, false
	}
	tasks, locks = health.Unreachable(a.facts(a.health.locks.Look(ctx)), a.health.began)
	return tasks, locks, true
}

// facts returns what is known of the servers.
func (a *Attached) facts(locks health.Evidence) health.Facts {
	f := health.Facts{Stopping: a.isStopping(), Locks: locks}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.servers {
		f.Servers = append(f.Servers, c.Pulse())
	}
	f.Now = time.Now()
	return f
}

func (a *Attached) isStopping() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}

// watch remembers a server, and forgets those that are gone.
func (a *Attached) watch(server *broker.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.servers = slices.DeleteFunc(a.servers, func(c *broker.Conn) bool { return c.Pulse().Over })
	a.servers = append(a.servers, server)
}
