package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/railtoken/railtoken/inspect"
)

const (
	// soonest is the interval of the reads for open pages, unless a read is slow: then it is eight times as long as the
	// read, and latest at most.
	soonest = 400 * time.Millisecond
	latest  = 5 * time.Second
	// share is how much of the time each command of a read takes from the interval: there are 50 commands a second at most,
	// whatever the open pages show.
	share = time.Second / 50
	// mostOpen limits how many pages are updated. Further ones ask at an interval.
	mostOpen = 64
	// heartbeat finds connections that are gone.
	heartbeat  = 15 * time.Second
	writeLimit = 10 * time.Second
)

// hub tells open pages that what they show has changed. Pages about the same thing share a topic. It reads only while
// a page is open.
type hub struct {
	fingerprints func(ctx context.Context, topics []string) (prints map[string]string, commands int)

	mu     sync.Mutex
	topics map[string]map[chan struct{}]struct{}
	open   int
	stop   context.CancelFunc // ends the reads; nil while no page is open
	done   chan struct{}      // closed when they have ended
	closed bool
	gone   chan struct{} // closed by close
}

func newHub(fingerprints func(ctx context.Context, topics []string) (map[string]string, int)) *hub {
	return &hub{fingerprints: fingerprints, topics: map[string]map[chan struct{}]struct{}{}, gone: make(chan struct{})}
}

// join returns a channel that receives when the topic has changed, or ok = false if no more pages may be open.
func (h *hub) join(topic string) (changed chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.open >= mostOpen {
		return nil, false
	}
	changed = make(chan struct{}, 1)
	if h.topics[topic] == nil {
		h.topics[topic] = map[chan struct{}]struct{}{}
	}
	h.topics[topic][changed] = struct{}{}
	h.open++
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		before, done := h.done, make(chan struct{})
		h.stop, h.done = stop, done
		go h.poll(ctx, before, done)
	}
	return changed, true
}

func (h *hub) leave(topic string, changed chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.topics[topic], changed)
	if len(h.topics[topic]) == 0 {
		delete(h.topics, topic)
	}
	h.open--
	if h.open == 0 {
		h.stop()
		h.stop = nil
	}
}

func (h *hub) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.gone)
	}
	if h.stop != nil {
		h.stop()
	}
	done := h.done
	h.mu.Unlock()
	if done != nil {
		<-done
	}
}

// poll reads the topics at an interval until ctx ends.
func (h *hub) poll(ctx context.Context, before <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if before != nil {
		<-before
	}
	last := map[string]string{}
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		reading, cancel := context.WithTimeout(ctx, readLimit)
		now, commands := h.fingerprints(reading, h.watched())
		cancel()
		if ctx.Err() != nil {
			return
		}
		for topic, text := range now {
			if seen, known := last[topic]; !known || seen != text {
				h.tell(topic)
			}
		}
		last = now
		wait = max(soonest, min(8*time.Since(began), latest), time.Duration(commands)*share)
	}
}

func (h *hub) watched() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	topics := make([]string, 0, len(h.topics))
	for topic := range h.topics {
		topics = append(topics, topic)
	}
	return topics
}

func (h *hub) tell(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for changed := range h.topics[topic] {
		select {
		case changed <- struct{}{}:
		default: // it has not heard of the last change yet
		}
	}
}

// events sends an event whenever what a page shows has changed, until the page is closed.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if _, err := p.authorize(r, inspect.ActionView); err != nil {
		p.fail(w, r, err)
		return
	}
	topic := ""
	if key, _ := p.keyIfAny(r); key != "" { // authorize has read it
		topic = keyTopic + key
	}
	changed, ok := p.hub.join(topic)
	if !ok {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages are open, or the server stops", http.StatusServiceUnavailable)
		return
	}
	defer p.hub.leave(topic, changed)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeLimit)) // where it is not supported, the server's own limit counts
		_, err := fmt.Fprint(w, text)
		return err == nil && control.Flush() == nil
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for ok := send(": open\n\n"); ok; {
		select {
		case <-changed:
			ok = send("event: changed\ndata:\n\n")
		case <-beat.C:
			ok = send(": still open\n\n")
		case <-p.hub.gone:
			return
		case <-r.Context().Done():
			return
		}
	}
}
