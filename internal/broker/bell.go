package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/broker/intake"
)

const (
	// mostBells is for how many queues a server listens: each takes a connection.
	mostBells = 4
	// listenFor is how long one call waits in Redis.
	listenFor = 5 * time.Second
	// quietMost is the longest time for which a bell is not listened to, and quietFailed the one after a call that failed.
	quietMost   = time.Second
	quietFailed = 30 * time.Second
)

// bell rings when a task comes into a queue of an idle server, which then need not wait for its next look. For each queue
// a BLMOVE waits in Redis, from the end of the list of pending tasks to the same end: Redis answers it when there is a
// task, and the list stays as it is. So nothing depends on the answer, and a server still looks at its intervals.
//
// On a Redis Cluster with lanes it is for the queues themselves: a task that comes into a lane has a notice (see laneLook).
//
// All idle servers of a queue hear of each task. One that has come in vain twice in a row does not listen for a while,
// twice as long each time. A bell is safe for concurrent use.
type bell struct {
	client redis.UniversalClient // with connections of its own; nil: it never rings
	hear   func(queue string)
	rung   chan struct{}
	ended  context.Context // ends a call that still dials
	end    context.CancelFunc

	mu      sync.Mutex
	calls   map[string]bool // those under way, by the key of the queue
	closed  bool
	quiet   time.Time     // it is not listened to until then
	next    time.Duration // of quiet
	begun   time.Time     // when it was last listened to
	rang    time.Time     // when it last rang
	waiting sync.WaitGroup
}

func newBell(client redis.UniversalClient, opts Options, hear func(queue string)) *bell {
	b := &bell{hear: hear, rung: make(chan struct{}, 1), calls: map[string]bool{}}
	b.ended, b.end = context.WithCancel(context.Background())
	served := intake.Served(opts.Queues)
	if len(served) > mostBells {
		return b
	}
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch client := client.(type) {
	case *redis.Client:
		own := *client.Options()
		own.PoolSize, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns, own.MaxRetries = len(served), 0, 0, 0, -1
		own.PushNotificationProcessor = nil
		own.MaintNotificationsConfig = quiet
		b.client = redis.NewClient(&own)
	case *redis.ClusterClient:
		if opts.Lanes.Count() == 0 {
			return b
		}
		own := *client.Options()
		own.PoolSize, own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns, own.MaxRetries = len(served), 0, 0, 0, -1
		own.MaintNotificationsConfig = quiet
		b.client = redis.NewClusterClient(&own)
	default:
		return b
	}
	for queue := range served {
		b.calls[asynqwire.Pending(queue)] = false
	}
	return b
}

// listen returns a channel that has a value once a task has come; nil while the bell is quiet.
func (b *bell) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client == nil || b.closed || time.Now().Before(b.quiet) {
		return nil
	}
	if !b.quiet.IsZero() { // it may have rung meanwhile
		b.quiet = time.Time{}
		select {
		case <-b.rung:
		default:
		}
	}
	b.begun = time.Now()
	for key, called := range b.calls {
		if !called {
			b.calls[key] = true
			b.waiting.Go(func() { b.wait(key) })
		}
	}
	return b.rung
}

// wait calls until a task is there.
func (b *bell) wait(key string) {
	var err error = redis.Nil // that of a call whose time is up
	for errors.Is(err, redis.Nil) {
		err = b.client.BLMove(b.ended, key, key, "RIGHT", "RIGHT", listenFor).Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[key] = false
	if err != nil { // Redis is away, or does not allow it
		b.quiet = time.Now().Add(quietFailed)
		return
	}
	b.rang = time.Now()
	if queue, ok := asynqwire.QueueOf(key, "pending"); ok {
		b.hear(queue)
	}
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// followed notes whether there was a task when the bell had rung. If it had rung before the pause, the server may have had
// the task already.
func (b *bell) followed(found bool, interval time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case found:
		b.next = 0
		return
	case b.rang.Before(b.begun):
		return
	}
	if b.next > 0 { // the first time, a call of this server with acknowledgements may have been faster
		b.quiet = time.Now().Add(b.next)
	}
	b.next = min(max(2*b.next, interval), quietMost)
}

// close ends the calls. It does not ring any more.
func (b *bell) close() {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if b.client != nil && !closed {
		b.end()
		_ = b.client.Close()
		b.waiting.Wait()
	}
}
