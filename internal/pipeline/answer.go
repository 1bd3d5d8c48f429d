package pipeline

import (
	"errors"
	"net"
	"slices"
	"time"
)

// deliver gives the answers of a pipeline to their callers. If the pipeline has timed out, queued calls fail, too.
func (s *Server) deliver(calls []*Call) {
	s.mu.Lock()
	s.unanswered -= len(calls)
	err := transportError(calls)
	s.note(err)
	if s.opts.Patience > 0 {
		s.health.answered(time.Now(), err)
		s.pipelined = nil
	}
	answer(calls)
	var rejected []*Call
	if isTimeout(err) {
		rejected = s.reject(true, err)
	}
	s.mu.Unlock()
	done(calls)
	done(rejected)
}

// answer marks calls as answered. The caller holds the mutex.
func answer(calls []*Call) {
	for _, c := range calls {
		c.state = answered
		if c.answer != nil {
			c.answer <- struct{}{} // it has room
		}
	}
}

// done calls the done functions of calls whose callers do not wait.
func done(calls []*Call) {
	for _, c := range calls {
		if c.answer == nil && c.done != nil {
			c.done(c)
		}
	}
}

// reject ends queued calls with an error: all of them, or only newcomers. The caller holds the mutex, and passes the
// result to done without it.
func (s *Server) reject(all bool, cause error) []*Call {
	calls := s.queue.reject(all)
	if len(calls) == 0 {
		return nil
	}
	err := notSent(cause)
	for _, c := range calls {
		c.Err = err
	}
	answer(calls)
	return calls
}

// watch schedules a look at the pipeline under way, unless one is scheduled. The caller holds the mutex.
func (s *Server) watch(after time.Duration) {
	if !s.watching {
		s.watching = true
		time.AfterFunc(after, s.look)
	}
}

// look tells the callers if the pipeline under way has been unanswered for longer than Patience.
func (s *Server) look() {
	s.mu.Lock()
	s.watching = false
	again, err := s.health.look(time.Now(), s.opts.Patience)
	if again > 0 {
		s.watch(again)
	}
	var late, rejected []*Call
	if err != nil {
		late = slices.Clone(s.pipelined)
		for c := s.queue.first.head; c != nil; c = c.next {
			late = append(late, c)
		}
		rejected = s.reject(false, err)
	}
	s.mu.Unlock()
	for _, c := range late {
		if c.Late != nil {
			c.Late(c)
		}
	}
	done(rejected)
}

// transportError returns why a pipeline had no answer, or nil if the server has answered.
func transportError(calls []*Call) error {
	for _, c := range calls {
		if c.Err == nil || isReply(c.Err) {
			return nil
		}
	}
	return calls[0].Err
}

// isTimeout reports whether an error says that there was no answer in time.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
