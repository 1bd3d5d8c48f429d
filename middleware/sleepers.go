package middleware

import "sync/atomic"

// Sleepers is the budget of one server for tasks that wait in their worker slots: it keeps hot keys from filling all of
// them. It also keeps what the server knows of the keys that they wait for. Share one among the middlewares of a server. It is safe for
// use by many goroutines at the same time.
type Sleepers struct {
	most  int64
	now   atomic.Int64
	decks decks

	collecting atomic.Bool // a task of several keys takes them one after another
}

// NewSleepers returns a budget of most tasks at a time; none may wait when most is 0 or less.
func NewSleepers(most int) *Sleepers { return &Sleepers{most: int64(most)} }

// InUse returns how many tasks wait at present.
func (s *Sleepers) InUse() int { return int(s.now.Load()) }

// hasRoom reports whether another task may wait at this moment.
func (s *Sleepers) hasRoom() bool { return s.now.Load() < s.most }

// take reports whether there was room, and takes it.
func (s *Sleepers) take() bool {
	for {
		n := s.now.Load()
		if n >= s.most {
			return false
		}
		if s.now.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *Sleepers) give() { s.now.Add(-1) }
