package delayqueue

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

var (
	//go:embed lua/park.lua
	parkSource string
	//go:embed lua/wake.lua
	wakeSource string
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/name.lua
	nameSource string

	parkScript  = redis.NewScript(parkSource)
	wakeScript  = redis.NewScript(wakeSource)
	claimScript = redis.NewScript(claimSource)
	nameScript  = redis.NewScript(nameSource)
)

// Options configures a [Queue]. The zero value has every default.
type Options struct {
	// Woken, when not nil, is called for each task that this Queue has moved to the head of its queue. It must be quick, and
	// safe for use by many goroutines: it lets an idle worker look for tasks at once instead of after its interval.
	Woken func(Task)
	// Logger receives what went wrong in the background. Silent when nil.
	Logger *slog.Logger
}

// Queue parks tasks on keys and wakes them. It is safe for use by many goroutines at the same time.
type Queue struct {
	client  redis.UniversalClient
	tasks   *asynq.Client
	inspect *asynq.Inspector
	log     *slog.Logger
	woken   func(Task)

	mu      sync.Mutex
	closed  bool
	closing context.Context // ends with Close
	cancel  context.CancelFunc
	busy    map[string]int // wakes of a key that are tried again in the background
	pending sync.WaitGroup // their goroutines
}

// New returns a Queue on the Redis where asynq keeps its tasks. The client stays the caller's: close it after the Queue. It
// panics when client is nil.
func New(client redis.UniversalClient, opts Options) (*Queue, error) {
	if client == nil {
		panic("delayqueue: New needs a Redis client")
	}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return nil, errors.New("delayqueue: tasks cannot be parked on several Redis nodes: " +
			"use a standalone or Sentinel-managed Redis for asynq (the locks may stay on a cluster)")
	}
	q := &Queue{
		client: client, log: opts.Logger, woken: opts.Woken, busy: map[string]int{},
		tasks: asynq.NewClientFromRedisClient(client), inspect: asynq.NewInspectorFromRedisClient(client),
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	q.closing, q.cancel = context.WithCancel(context.Background())
	return q, nil
}

// Close waits for the wakes under way, for a second at most, and ends the Queue. Nothing is lost by it: a task that was not
// woken runs when its timer ends.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	timer := time.AfterFunc(time.Second, q.cancel)
	defer timer.Stop()
	q.pending.Wait()
	q.cancel()
	return nil
}

// registryPrefix begins the names of all registries.
const registryPrefix = "railtoken:waiters:{"

// registry returns the name of the sorted set of a key's waiters.
func registry(key string) string { return registryPrefix + keys.Encode(key) + "}" }

// keyOf returns the key that a registry is of.
func keyOf(registry string) (string, bool) {
	if len(registry) <= len(registryPrefix) {
		return "", false
	}
	return keys.Decode(registry[len(registryPrefix) : len(registry)-1])
}
