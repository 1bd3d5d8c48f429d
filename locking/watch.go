package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Watch tells a waiting caller that a key may have become free.
type Watch struct {
	// C receives a value after a release. Several releases may come as one.
	C <-chan struct{}

	wake     chan struct{}
	channels []string
	owner    *notices
	once     sync.Once
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() { w.once.Do(func() { w.owner.drop(w) }) }

// notices shares one Redis subscription among all watches of a process. The subscription is opened with the first watch
// and kept until close, since a hot key has waiters again and again.
type notices struct {
	client redis.UniversalClient

	mu       sync.Mutex
	pubsub   *redis.PubSub
	watches  map[string]map[*Watch]struct{} // by channel
	finished chan struct{}                  // closed when the reading goroutine has ended
	closed   bool
}

func newNotices(client redis.UniversalClient) *notices {
	return &notices{client: client, watches: map[string]map[*Watch]struct{}{}}
}

// errClosed is what a closed Locker answers to Watch.
var errClosed = errors.New("locking: the locker is closed")

func (n *notices) watch(ctx context.Context, channels []string) (*Watch, error) {
	wake := make(chan struct{}, 1)
	w := &Watch{C: wake, wake: wake, channels: channels, owner: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	var fresh []string
	for _, ch := range channels {
		if n.watches[ch] == nil {
			n.watches[ch] = map[*Watch]struct{}{}
			fresh = append(fresh, ch)
		}
		n.watches[ch][w] = struct{}{}
	}
	if n.pubsub == nil {
		n.pubsub = n.client.Subscribe(ctx)
		n.finished = make(chan struct{})
		go n.read(n.pubsub.Channel(), n.finished)
	}
	if len(fresh) > 0 {
		if err := n.pubsub.Subscribe(ctx, fresh...); err != nil {
			n.dropLocked(w)
			return nil, fmt.Errorf("locking: watch %d keys: %w", len(channels), err)
		}
	}
	return w, nil
}

// read hands messages on until the subscription is closed.
func (n *notices) read(messages <-chan *redis.Message, finished chan<- struct{}) {
	defer close(finished)
	for m := range messages {
		n.mu.Lock()
		for w := range n.watches[m.Channel] {
			select {
			case w.wake <- struct{}{}:
			default: // it has a notice already
			}
		}
		n.mu.Unlock()
	}
}

func (n *notices) drop(w *Watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropLocked(w)
}

func (n *notices) dropLocked(w *Watch) {
	var idle []string
	for _, ch := range w.channels {
		if _, ok := n.watches[ch][w]; !ok {
			continue
		}
		delete(n.watches[ch], w)
		if len(n.watches[ch]) == 0 {
			delete(n.watches, ch)
			idle = append(idle, ch)
		}
	}
	if len(idle) > 0 && n.pubsub != nil && !n.closed {
		// Should this fail, the connection is gone, and the subscription with it.
		_ = n.pubsub.Unsubscribe(context.Background(), idle...)
	}
}

func (n *notices) close() error {
	n.mu.Lock()
	n.closed = true
	pubsub, finished := n.pubsub, n.finished
	n.pubsub = nil
	n.mu.Unlock()
	if pubsub == nil {
		return nil
	}
	err := pubsub.Close()
	<-finished
	return err
}
