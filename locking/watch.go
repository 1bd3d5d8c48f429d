package locking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch tells a waiting caller that a key may have become free.
type Watch struct {
	// C receives a value after a release. Several releases may come as one.
	C <-chan struct{}

	close func()
	once  sync.Once
}

// NewWatch returns a watch and the function that gives it a notice, which never waits: for implementations of [Watcher]. Close calls end,
// if it is not nil, once.
func NewWatch(end func()) (w *Watch, notify func()) {
	w, notify = newWatch()
	w.close = end
	return w, notify
}

// newWatch returns a watch whose close the caller sets.
func newWatch() (w *Watch, notify func()) {
	wake := make(chan struct{}, 1)
	return &Watch{C: wake}, func() {
		select {
		case wake <- struct{}{}:
		default: // it has a notice already
		}
	}
}

// Close ends the watch. It may be called more than once.
func (w *Watch) Close() {
	w.once.Do(func() {
		if w.close != nil {
			w.close()
		}
	})
}

const (
	// subscribeTimeout bounds one change of the subscription, and subscribePause is the pause after one that failed.
	subscribeTimeout = 5 * time.Second
	subscribePause   = 100 * time.Millisecond
)

// notices shares one Redis subscription among all watches of a process. What is watched is a matter of memory; one goroutine
// makes the subscription follow it, so that no watch waits for a server that does not answer. The subscription is opened with the
// first watch and kept until close, since a hot key has waiters again and again.
type notices struct {
	client redis.UniversalClient

	mu      sync.Mutex
	watches map[string]map[*listener]struct{} // by channel
	started bool
	closed  bool

	changed chan struct{} // has a value when watches has changed
	ctx     context.Context
	cancel  context.CancelFunc // ends the goroutines
	running sync.WaitGroup
}

func newNotices(client redis.UniversalClient) *notices {
	n := &notices{client: client, watches: map[string]map[*listener]struct{}{}, changed: make(chan struct{}, 1)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// errClosed is what a closed Locker answers to Watch.
var errClosed = errors.New("locking: the locker is closed")

// listener is who is told of messages in some channels.
type listener struct {
	channels []string
	notify   func() // it does not wait
}

// watch calls notify for each message in one of the channels, until the function that it returns is called.
func (n *notices) watch(channels []string, notify func()) (drop func(), err error) {
	w := &listener{channels: channels, notify: notify}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	for _, ch := range channels {
		if n.watches[ch] == nil {
			n.watches[ch] = map[*listener]struct{}{}
		}
		n.watches[ch][w] = struct{}{}
	}
	if !n.started {
		n.started = true
		n.running.Go(n.follow)
	}
	n.change()
	return func() { n.drop(w) }, nil
}

func (n *notices) drop(w *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ch := range w.channels {
		delete(n.watches[ch], w)
		if len(n.watches[ch]) == 0 {
			delete(n.watches, ch)
		}
	}
	n.change()
}

// change tells follow that watches has changed. The caller holds the mutex.
func (n *notices) change() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// follow keeps the subscription to what is watched, until close.
func (n *notices) follow() {
	pubsub := n.client.Subscribe(n.ctx)
	n.running.Go(func() { n.read(pubsub.Channel()) })
	defer func() { _ = pubsub.Close() }() // ends read
	subscribed := map[string]bool{}
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.changed:
		}
		if n.adapt(pubsub, subscribed) == nil {
			continue
		}
		timer := time.NewTimer(subscribePause)
		select {
		case <-n.ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		n.mu.Lock()
		n.change() // once more
		n.mu.Unlock()
	}
}

// adapt subscribes to what is watched and no longer to what is not. In subscribed are the channels that go-redis keeps to over
// reconnects, also when it returned an error: false for those that must be asked for again.
func (n *notices) adapt(pubsub *redis.PubSub, subscribed map[string]bool) error {
	var fresh, idle []string
	n.mu.Lock()
	for ch := range n.watches {
		if !subscribed[ch] {
			fresh = append(fresh, ch)
		}
	}
	for ch := range subscribed {
		if n.watches[ch] == nil {
			idle = append(idle, ch)
		}
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, subscribeTimeout)
	defer cancel()
	if len(fresh) > 0 {
		err := pubsub.Subscribe(ctx, fresh...)
		for _, ch := range fresh {
			subscribed[ch] = err == nil
		}
		if err != nil {
			return err
		}
	}
	if len(idle) > 0 {
		if err := pubsub.Unsubscribe(ctx, idle...); err != nil {
			return err
		}
		for _, ch := range idle {
			delete(subscribed, ch)
		}
	}
	return nil
}

// read hands messages on until the subscription is closed.
func (n *notices) read(messages <-chan *redis.Message) {
	for m := range messages {
		n.mu.Lock()
		for w := range n.watches[m.Channel] {
			w.notify()
		}
		n.mu.Unlock()
	}
}

func (n *notices) close() error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.running.Wait()
	return nil
}
