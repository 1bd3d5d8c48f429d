package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// Pulse is what a [Conn] knows of its server's fetch loop and of Redis. Times are zero if the event has not happened.
type Pulse struct {
	Began time.Time // the fetch that is under way, if there is one
	Ended time.Time // the end of the last fetch, whether it succeeded or failed
	// Worked reports that a fetch has succeeded once. Err is the error of the last fetch, if it has failed, and Failing
	// the end of the first one that failed since the last success.
	Worked  bool
	Err     error
	Failing time.Time
	// Answered is when Redis last carried out a call: a fetch, or the heartbeat that asynq sends every 5 s.
	Answered time.Time

	Busy     bool          // no slot is free, or it is not known whether one is: asynq need not fetch
	Over     bool          // asynq has recorded that the server is gone
	Interval time.Duration // the longest pause of an idle server between two fetches
}

// pulse records what becomes a [Pulse]. It is safe for concurrent use.
type pulse struct {
	mu  sync.Mutex
	now Pulse
}

func (p *pulse) read() Pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// fetching notes that a fetch begins.
func (p *pulse) fetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Began = time.Now()
}

// fetched notes the end of a fetch.
func (p *pulse) fetched(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.now.Began, p.now.Ended = time.Time{}, now
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		p.now.Worked, p.now.Err, p.now.Failing, p.now.Answered = true, nil, time.Time{}, now
	case rediswire.Says(err, rediswire.NoScript): // go-redis sends the whole script next
	case p.now.Err == nil:
		p.now.Err, p.now.Failing = err, now
	default:
		p.now.Err = err
	}
}

// called notes the end of another call.
func (p *pulse) called(err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Answered = time.Now()
}

// over notes that the server is gone.
func (p *pulse) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Over = true
}
