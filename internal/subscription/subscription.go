// Package subscription shares one Redis subscription among all callers of a Locker that wait for messages.
package subscription

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewNotifier returns a channel for one waiting caller, and a function that notifies the caller without blocking.
func NewNotifier() (released chan struct{}, notify func()) {
	released = make(chan struct{}, 1)
	return released, func() {
		select {
		case released <- struct{}{}:
		default: // the caller is notified already
		}
	}
}

const (
	// changeTimeout bounds one change of the subscription, and changePause follows a failed change.
	changeTimeout = 5 * time.Second
	changePause   = 100 * time.Millisecond
)

// Subscription is one Redis subscription for many subscribers. A goroutine keeps it equal to the set of subscribers in
// memory, so that none waits for a server that does not answer. The subscription is opened with the first subscriber and
// kept until Close, because a busy key has waiters again and again. It is safe for concurrent use.
type Subscription struct {
	client redis.UniversalClient

	mu          sync.Mutex
	subscribers map[string]map[*subscriber]struct{} // by channel
	started     bool
	closed      bool

	changed chan struct{} // receives a value when subscribers changes
	ctx     context.Context
	cancel  context.CancelFunc // ends the goroutines
	running sync.WaitGroup
}

// New returns a Subscription without subscribers. The client is still the caller's.
func New(client redis.UniversalClient) *Subscription {
	s := &Subscription{
		client: client, subscribers: map[string]map[*subscriber]struct{}{}, changed: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// errClosed is the error of a subscriber after Close.
var errClosed = errors.New("locking: the locker is closed")

// subscriber is notified of messages in some channels.
type subscriber struct {
	channels []string
	notify   func()               // does not block
	message  func(payload string) // called instead of notify if it is set; does not block
}

// Add calls notify for each message in one of the channels, until drop is called.
func (s *Subscription) Add(channels []string, notify func()) (drop func(), err error) {
	return s.subscribe(&subscriber{channels: channels, notify: notify})
}

// Follow calls message with each message in a channel, until drop is called.
func (s *Subscription) Follow(channel string, message func(payload string)) (drop func(), err error) {
	return s.subscribe(&subscriber{channels: []string{channel}, message: message})
}

func (s *Subscription) subscribe(w *subscriber) (drop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	for _, ch := range w.channels {
		if s.subscribers[ch] == nil {
			s.subscribers[ch] = map[*subscriber]struct{}{}
		}
		s.subscribers[ch][w] = struct{}{}
	}
	if !s.started {
		s.started = true
		s.running.Go(s.follow)
	}
	s.change()
	return func() { s.drop(w) }, nil
}

func (s *Subscription) drop(w *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range w.channels {
		delete(s.subscribers[ch], w)
		if len(s.subscribers[ch]) == 0 {
			delete(s.subscribers, ch)
		}
	}
	s.change()
}

// change tells follow that subscribers has changed.
func (s *Subscription) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// follow keeps the Redis subscription equal to subscribers, until Close.
func (s *Subscription) follow() {
	pubsub := s.client.Subscribe(s.ctx)
	s.running.Go(func() { s.read(pubsub.Channel()) })
	defer func() { _ = pubsub.Close() }() // ends read
	subscribed := map[string]bool{}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
		}
		if s.adapt(pubsub, subscribed) == nil {
			continue
		}
		s.change() // try again, after a pause
		select {
		case <-s.ctx.Done():
		case <-time.After(changePause):
		}
	}
}

// adapt subscribes to new channels and unsubscribes from unused ones. The keys of subscribed are the channels to which
// go-redis subscribes again after a reconnect, even after an error; their value is false if the last request failed.
func (s *Subscription) adapt(pubsub *redis.PubSub, subscribed map[string]bool) error {
	var fresh, idle []string
	s.mu.Lock()
	for ch := range s.subscribers {
		if !subscribed[ch] {
			fresh = append(fresh, ch)
		}
	}
	for ch := range subscribed {
		if s.subscribers[ch] == nil {
			idle = append(idle, ch)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, changeTimeout)
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

// read notifies subscribers until the Redis subscription is closed.
func (s *Subscription) read(messages <-chan *redis.Message) {
	for m := range messages {
		s.mu.Lock()
		for w := range s.subscribers[m.Channel] {
			if w.message != nil {
				w.message(m.Payload)
			} else {
				w.notify()
			}
		}
		s.mu.Unlock()
	}
}

// Close ends the Redis subscription, and returns when nobody is notified any more. It waits for its connection to end,
// but for 1 s at most, because a client may wait longer for a server that does not answer.
func (s *Subscription) Close() error {
	s.mu.Lock()
	s.closed = true
	clear(s.subscribers)
	s.mu.Unlock()
	s.cancel()
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	return nil
}

// closeTimeout is how long Close waits for the connection.
const closeTimeout = time.Second
