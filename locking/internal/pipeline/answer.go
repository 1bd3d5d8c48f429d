package pipeline

import (
	"errors"
	"net"
	"slices"
	"time"
)

// deliver gives the answers of a pipeline to their callers. When it has timed out, no call waits behind it any longer.
func (s *Server) deliver(calls []*Call) {
	s.mu.Lock()
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
			close(c.answer)
		}
	}
}

// done calls back the callers that do not wait.
func done(calls []*Call) {
	for _, c := range calls {
		if c.answer == nil && c.done != nil {
			c.done(c)
		}
	}
}

// reject ends queued calls, of newcomers or all, because of an error. The caller holds the mutex, and calls done
// without it.
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

// watch has the pipeline under way checked after a time, unless that is due already. The caller holds the mutex.
func (s *Server) watch(after time.Duration) {
	if !s.watching {
		s.watching = true
		time.AfterFunc(after, s.look)
	}
}

// look tells the callers when the pipeline under way is unanswered for longer than Patience.
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

// transportError returns why a pipeline had no answer, or nil when the server has answered.
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
