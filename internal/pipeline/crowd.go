package pipeline

import (
	"sync"
	"time"
)

// Crowd lets several Servers wait for each other as the leaders of one do: while others have calls under way, one sends joint
// calls only when so many are queued as the others have on average, or Least, so that they cost less. Calls of more than a few
// milliseconds keep nobody waiting. The zero value is ready. It is safe for concurrent use.
type Crowd struct {
	mu      sync.Mutex
	flights map[*Server]flight
	waiting map[*Server]struct{}
	again   *time.Timer // has the waiting ones look again; nil if it is not set
}

// flight is what one Server has under way.
type flight struct {
	calls int
	since time.Time
}

// began notes that a Server has sent calls. c may be nil, here and below.
func (c *Crowd) began(s *Server, calls int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights == nil {
		c.flights, c.waiting = map[*Server]flight{}, map[*Server]struct{}{}
	}
	c.flights[s] = flight{calls, time.Now()}
}

// ended notes that the calls of a Server were answered.
func (c *Crowd) ended(s *Server) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, s)
}

// lets reports whether a Server may send so many joint calls. If not, it is told to look again.
func (c *Crowd) lets(s *Server, queued, least int) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, calls, now := 0, 0, time.Now()
	for _, f := range c.flights {
		if now.Sub(f.since) < recent {
			n, calls = n+1, calls+f.calls
		}
	}
	if n == 0 || queued >= min(least, calls/n) {
		return true
	}
	c.waiting[s] = struct{}{}
	if c.again == nil {
		c.again = time.AfterFunc(recent, func() {
			c.mu.Lock()
			c.again = nil
			c.mu.Unlock()
			c.next()
		})
	}
	return false
}

// next has the Servers that wait look again. No lock of a Server is held.
func (c *Crowd) next() {
	if c == nil {
		return
	}
	c.mu.Lock()
	waiting := make([]*Server, 0, len(c.waiting))
	for s := range c.waiting {
		waiting = append(waiting, s)
	}
	clear(c.waiting)
	c.mu.Unlock()
	for _, s := range waiting {
		s.lookAgain()
	}
}

// lookAgain sends what is queued, if the crowd lets it now.
func (s *Server) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.size() > 0 && s.underWay == 0 && s.mayLead(nil) {
		s.underWay++
		go s.drain()
	}
}
