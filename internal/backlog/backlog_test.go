package backlog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/backlog"
)

// server answers calls while it is up.
type server struct {
	mu       sync.Mutex
	up       bool
	sent     int
	underWay int
	most     int // under way at the same time
	answered []int
}

var errDown = errors.New("no answer")

func (s *server) call(n int) func(context.Context) error {
	return func(context.Context) error {
		s.mu.Lock()
		s.sent++
		s.underWay++
		s.most = max(s.most, s.underWay)
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underWay--
		if !s.up {
			return errDown
		}
		s.answered = append(s.answered, n)
		return nil
	}
}

func (s *server) set(up bool) (sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = up
	return s.sent
}

func TestABacklogWaitsForItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b, over := &server{}, backlog.New(backlog.Options{AtOnce: 10}), 0
		defer b.Close()
		var mu sync.Mutex
		for n := range 10000 {
			b.Add(&backlog.Call{Try: s.call(n), For: time.Hour, Over: func() {
				mu.Lock()
				defer mu.Unlock()
				over++
			}}, false)
		}
		time.Sleep(10 * time.Second)
		sent := s.set(false)
		time.Sleep(time.Minute)
		if n := s.set(true) - sent; n > 150 {
			t.Errorf("%d calls within a minute without an answer; want 2 or 3 a second", n)
		}
		b.Wait(t.Context(), 2*time.Second)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		if len(s.answered) != 10000 || over != 10000 || s.most != 10 {
			t.Errorf("%d calls were answered and %d are over, %d at once; want 10000, 10 at once",
				len(s.answered), over, s.most)
		}
		late, newest := 0, 0
		for _, n := range s.answered {
			if n < newest-20 {
				late++
			}
			newest = max(newest, n)
		}
		if late > 20 { // which were resting after a failure
			t.Errorf("%d calls were answered after newer ones", late)
		}
	})
}

func TestABacklogForgetsWhatIsUseless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := &server{}, backlog.New(backlog.Options{Most: 2, AfterClose: time.Second})
		began, over := time.Now(), make(chan time.Duration, 3)
		add := func(d time.Duration) bool {
			return b.Add(&backlog.Call{Try: s.call(0), For: d, Over: func() { over <- time.Since(began) }}, true)
		}
		if !add(3*time.Second) || !add(time.Hour) || add(time.Hour) {
			t.Error("there is room for two calls")
		}
		if at := <-over; at < 3*time.Second || at > 4*time.Second {
			t.Errorf("a call for 3s is over after %v", at)
		}
		b.Wait(t.Context(), time.Second)
		b.Close()
		if at := <-over; at > 6*time.Second {
			t.Errorf("the other call is over after %v; want with Close", at)
		}
		closed := time.Since(began)
		if !add(time.Hour) {
			t.Error("no call is taken after Close")
		}
		if at := <-over - closed; at < 900*time.Millisecond || at > 2*time.Second {
			t.Errorf("a call after Close is over after %v; want 1s", at)
		}
		sent := s.set(false)
		time.Sleep(time.Hour)
		if s.set(false) != sent {
			t.Error("a call was sent that is over")
		}
	})
}
